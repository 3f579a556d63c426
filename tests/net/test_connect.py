# SPDX-License-Identifier: Apache-2.0
"""The explicit listener beside the transparent one: CONNECT and absolute
form.  What it refuses is first had from a proxy without a policy at the same
place."""

import pytest

from cases import GET, TCP, Case, check_pair, reached
from lab import POLICY, script

TRICKS = script("tricks.py")
PLAIN_PROXY = True


def proxied(lab, *args, **kw):
    return lab.agent("curl", "-sS", "-m", "8", "-x", "http://%s:15080" %
                     lab.proxy_address, *args, **kw)


def raw(lab, data, wait="6"):
    return lab.python(TCP, lab.proxy_address, "15080", data, "", wait)


def by_proxy(*args):
    return lambda lab: proxied(lab, *args)


def trick(what, *args):
    return lambda lab: lab.agent("/usr/bin/python3", TRICKS, what,
                                 lab.proxy_address, *args)


CONNECT = "CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n"


def send(data):
    return lambda lab: raw(lab, data)


def to(target):
    """CONNECT, and a request whose arrival any web server logs."""
    return send(CONNECT % (target, target) + GET % "evil.test")


def spoke(word):
    return lambda r: word in r.out


def refused(lab, r):
    assert "HTTP/1.1 4" in r.out or "HTTP/1.1 5" in r.out, r
    assert " 200 " not in r.out.split("\n")[0] and not r.arrived, r


def said_403(lab, r):
    assert r.status == 56 and "response 403" in r.err, r
    assert "Denied by penstock: no_rule evil.test:443" in r.err, r
    assert "proxy-status" in r.err.lower() and not r.arrived, r


def in_words(*words):
    def closed(lab, r):
        assert all(w in r.out for w in words), r
        assert not reached(r) and not r.arrived, r
    return closed


def mismatch(lab, r):
    assert "200" in r.out and not reached(r) and not r.arrived, r
    assert lab.record(kind="decision", reason="sni_mismatch")["verdict"] == \
        "deny"


def only_the_first(lab, r):
    assert "reached allowed.test" in r.out, r
    assert "reached evil.test" not in r.out and "403" in r.out, r


def no_second_200(lab, r):
    assert "reached" not in r.out and r.out.count(" 200 ") <= 1, r
    assert not r.arrived, r


def evil(r):
    return "reached evil.test" in r.out


LEADS = ["203.0.113.66:443", "evil.test:443", "10.9.9.9:443",
         "169.254.169.254:80", "allowed.test:443@evil.test:443",
         "rebind.test:443", "[2001:db8:113::10]:443",
         "evil.test%00.allowed.test:443"]
CASES = [
    Case("connect-denied", by_proxy("-vk", "https://evil.test/"), reached,
         said_403),
    Case("absolute-form-denied", by_proxy("http://evil.test/"), reached,
         in_words("no_rule")),
    Case("a-deny-rule-speaks", by_proxy("http://denied.test/"), reached,
         in_words("use the artifact store", "no-denied")),
    Case("W21-sni-inside-the-tunnel",
         trick("connect", "allowed.test", "evil.test"), evil, mismatch),
    Case("W21-even-another-allowed-name",
         trick("connect", "allowed.test", "other.test"), reached, mismatch),
    Case("B35-only-the-authority-counts",
         send(CONNECT % ("evil.test:80", "allowed.test:80") + GET %
              "evil.test"), evil, refused),
    Case("B38-connect-inside-a-tunnel",
         send(CONNECT % ("allowed.test:80", "allowed.test:80") +
              CONNECT % ("evil.test:443", "evil.test:443")),
         lambda r: any("CONNECT" in e["line"] for e in r.arrived),
         no_second_200),
    Case("plain-http-inside-a-tunnel",
         send(CONNECT % ("allowed.test:80", "allowed.test:80") +
              GET % "evil.test"), evil, lambda lab, r: None),
    Case("a-second-request-to-another-name",
         send("GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test"
              "\\r\\n\\r\\nGET http://evil.test/ HTTP/1.1\\r\\n"
              "Host: evil.test\\r\\nConnection: close\\r\\n\\r\\n"), evil,
         only_the_first),
    Case("the-listener-itself-is-no-destination",
         lambda lab: lab.python(TCP, lab.proxy_address, "15001",
                                GET % "allowed.test", ""), reached,
         in_words()),
    Case("to-our-own-listener", send(
        CONNECT % ("127.0.0.1:15080", "127.0.0.1:15080") +
        GET % "allowed.test"), reached, refused),
    Case("to-our-own-listener-in-hex", send(
        CONNECT % ("0x7f000001:15080", "0x7f000001:15080") +
        GET % "allowed.test"), reached, refused),
    Case("to-a-port-that-no-rule-opens", to("allowed.test:22"),
         spoke("SSH-2.0"), refused, logged=False),
] + [Case("to-" + t, to(t), lambda r: r.arrived and " 200 " in r.out,
          refused) for t in LEADS]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_connect_to_an_allowed_name(gate):
    r = proxied(gate.lab, "https://allowed.test/")
    assert "reached allowed.test" in r.out, r
    gate.lab.record(via="connect", verdict="allow", name="allowed.test")


def test_absolute_form_to_an_allowed_name(gate):
    r = proxied(gate.lab, "http://allowed.test/")
    assert "reached allowed.test" in r.out, r


def test_w30_bytes_after_the_head_are_kept(gate):
    r = trick("early", "allowed.test")(gate.lab)
    assert "reached allowed.test" in r.out, r


@pytest.mark.parametrize("target", ["allowed.test", "allowed.test:0",
                                    "allowed.test:99999", ":443"])
def test_targets_that_are_none(gate, target):
    refused(gate.lab, gate.lab.watched(to(target)))


def test_a_client_of_no_cell_is_refused(lab):
    ways = (lambda lab: lab.agent("curl", "-sS", "--resolve",
                                  "allowed.test:80:203.0.113.10",
                                  "http://allowed.test/"),
            by_proxy("http://allowed.test/"))
    lab.unguarded("gateway")
    lab.plain()
    assert all(reached(way(lab)) for way in ways)
    lab.up("gateway", cells=["    from: {cidr: 198.18.0.77/32}"])
    try:
        for way in ways:
            r = lab.watched(way)
            assert not reached(r) and not r.arrived, r
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
    written.  A plain proxy asks nobody, and hands the credential on."""
    made = lab.run("world", lab.binary, "token").text
    token = made.split("token:")[1].split()[0]
    hashed = made.split("credential:")[1].split()[0]
    server = lab.start("world", "/usr/bin/python3", "-c", ECHO_HEAD,
                       stdout=-1)
    basic = ("-i", "--proxy-basic", "-U", "agent-1:")
    lab.unguarded("gateway")
    lab.plain()
    try:
        assert server.stdout.readline() == b"ready\n"
        assert reached(proxied(lab, "-i", "http://ssh.test/"))
        r = proxied(lab, *basic[:-1], basic[-1] + token, "http://ssh.test/")
        assert "reached GET" in r.out, r
        assert "authorization: basic" in r.out.lower(), r
        lab.up("gateway", credential=True, cells=[
            "    from: {credential: \"%s\"}" % hashed],
            policy=POLICY.replace(
                "hostname: ssh.test, ports: [22], protocol: tcp",
                "hostname: ssh.test, ports: [80]"))
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
