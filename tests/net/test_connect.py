# SPDX-License-Identifier: Apache-2.0
"""The explicit listener beside the transparent one: CONNECT and absolute
form.  Without the guard an agent needs no proxy, so the leaks are direct."""
import os

import pytest

from cases import GET, TCP, reached
from lab import HERE, POLICY

TRICKS = os.path.join(HERE, "tricks.py")


def proxied(lab, *args, **kw):
    return lab.agent("curl", "-sS", "-m", "8", "-x", "http://%s:15080" %
                     lab.proxy_address, *args, **kw)


def raw(lab, data):
    return lab.python(TCP, lab.proxy_address, "15080", data, "", "6")


def test_connect_to_an_allowed_name(gate):
    r = proxied(gate.lab, "https://allowed.test/")
    assert "reached allowed.test" in r.out, r
    gate.lab.record(via="connect", verdict="allow", name="allowed.test")


def test_absolute_form_to_an_allowed_name(gate):
    r = proxied(gate.lab, "http://allowed.test/")
    assert "reached allowed.test" in r.out, r


def test_connect_denied_says_403(gate):
    r = proxied(gate.lab, "-v", "https://evil.test/")
    assert r.status == 56 and "response 403" in r.err, r
    assert "Denied by penstock: no_rule evil.test:443" in r.err, r
    assert "proxy-status" in r.err.lower(), r


def test_absolute_form_denied_says_403(gate):
    r = proxied(gate.lab, "http://evil.test/")
    assert "no_rule" in r.out and not reached(r), r


def test_a_deny_rule_speaks(gate):
    r = proxied(gate.lab, "http://denied.test/")
    assert "use the artifact store" in r.out and "no-denied" in r.out, r


def test_w21_sni_inside_the_tunnel(gate):
    r = gate.lab.agent("/usr/bin/python3", TRICKS, "connect",
                       gate.lab.proxy_address, "allowed.test", "evil.test")
    assert "200" in r.out and not reached(r), r
    assert gate.lab.record(kind="decision", reason="sni_mismatch")["verdict"] == "deny"


def test_w21_even_another_allowed_name(gate):
    r = gate.lab.agent("/usr/bin/python3", TRICKS, "connect",
                       gate.lab.proxy_address, "allowed.test", "other.test")
    assert not reached(r), r


def test_w30_bytes_after_the_head_are_kept(gate):
    r = gate.lab.agent("/usr/bin/python3", TRICKS, "early",
                       gate.lab.proxy_address, "allowed.test")
    assert "reached allowed.test" in r.out, r


CONNECT = "CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n"


@pytest.mark.parametrize("target", [
    "203.0.113.66:443", "[2001:db8:113::10]:443", "127.0.0.1:15080",
    "allowed.test:22", "evil.test:443", "rebind.test:443",
    "allowed.test", "allowed.test:0", "allowed.test:99999", ":443",
    "allowed.test:443@evil.test:443", "169.254.169.254:80", "10.9.9.9:443",
    "0x7f000001:80", "allowed.test%00.evil.test:443"])
def test_targets_that_are_refused(gate, target):
    r = raw(gate.lab, CONNECT % (target, target))
    assert "HTTP/1.1 4" in r.out or "HTTP/1.1 5" in r.out, r
    assert " 200 " not in r.out.split("\n")[0], r


def test_b35_only_the_authority_counts(gate):
    r = raw(gate.lab, CONNECT % ("evil.test:443", "allowed.test:443"))
    assert " 200 " not in r.out and "HTTP/1.1 4" in r.out, r


def test_b38_connect_inside_a_tunnel(gate):
    inner = CONNECT % ("evil.test:443", "evil.test:443")
    r = raw(gate.lab, CONNECT % ("allowed.test:80", "allowed.test:80") +
            inner)
    assert "reached" not in r.out and r.out.count(" 200 ") <= 1, r


def test_plain_http_inside_a_tunnel_is_judged(gate):
    r = raw(gate.lab, CONNECT % ("allowed.test:80", "allowed.test:80") +
            GET % "evil.test")
    assert "reached evil.test" not in r.out, r


def test_a_second_request_to_another_name(gate):
    first = "GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test" \
        "\\r\\n\\r\\n"
    other = "GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n" \
        "Connection: close\\r\\n\\r\\n"
    r = raw(gate.lab, first + other)
    assert "reached allowed.test" in r.out, r
    assert "reached evil.test" not in r.out and "403" in r.out, r


def test_the_listener_itself_is_no_destination(gate):
    """A connection whose destination is our own listener is refused."""
    r = gate.lab.python(TCP, "127.0.0.1" if gate.lab.mode == "shared"
                        else "198.18.0.1", "15001", GET % "allowed.test", "")
    assert not reached(r), r


def test_a_client_of_no_cell_is_refused(lab):
    lab.up("gateway", cells=["    from: {cidr: 198.18.0.77/32}"])
    try:
        for r in (lab.agent("curl", "-sS", "--resolve",
                            "allowed.test:80:203.0.113.10",
                            "http://allowed.test/"),
                  proxied(lab, "http://allowed.test/")):
            assert not reached(r), r
        assert lab.record(reason="unknown_cell")["verdict"] == "deny"
    finally:
        lab.down()


ECHO_HEAD = """
import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("203.0.113.14", 80))
s.listen()
print("ready", flush=True)
while True:
    c, _ = s.accept()
    head = c.recv(65536)
    c.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nreached " + head)
    c.close()
"""


def test_w29_credentials_are_asked_for_and_stay_here(lab):
    """Basic at the explicit listener: 407 without, never forwarded, never
    written."""
    made = lab.run("world", lab.binary, "token").text
    token = made.split("token:")[1].split()[0]
    hashed = made.split("credential:")[1].split()[0]
    server = lab.start("world", "/usr/bin/python3", "-c", ECHO_HEAD,
                       stdout=-1)
    lab.up("gateway", credential=True, cells=[
        "    from: {credential: \"%s\"}" % hashed],
        policy=POLICY.replace(
            "hostname: ssh.test, ports: [22], protocol: tcp",
            "hostname: ssh.test, ports: [80]"))
    try:
        assert server.stdout.readline() == b"ready\n"
        r = proxied(lab, "-i", "http://ssh.test/")
        assert " 407 " in r.out and "Basic" in r.out and not reached(r), r
        r = proxied(lab, "-i", "-U", "agent-1:wrong", "http://ssh.test/")
        assert " 407 " in r.out and not reached(r), r
        for how in ("--proxy-basic", "--proxy-anyauth"):
            r = proxied(lab, how, "-U", "agent-1:" + token,
                        "http://ssh.test/")
            assert "reached GET" in r.out, r
            assert "authorization" not in r.out.lower(), r
        r = proxied(lab, "--proxy-anyauth", "-U", "agent-1:" + token,
                    "https://allowed.test/")
        assert "reached allowed.test" in r.out, r
        with open(lab.records_path) as f, open(lab.log_path) as g:
            assert token not in f.read() + g.read()
    finally:
        lab.stop(server)
        lab.down()
