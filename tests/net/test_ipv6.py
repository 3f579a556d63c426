# SPDX-License-Identifier: Apache-2.0
"""IPv6: judged like IPv4 with `ipv6: proxy`, closed at once with `ipv6:
drop`, and an address of the old family inside one of the new never a way
round."""
import re

import pytest

from cases import (ASK, GET, TCP, UDP, Case, check_pair, curl, led_astray,
                   program, reached, refused_with)
from conftest import MODES
from lab import NAMES, PYTHON
from test_tls import trick

SETTINGS = {"ipv6": "proxy"}
SIX = "2001:db8:113::10"
EVIL = GET % "evil.test"

# Whatever arrives at these addresses of the world is told on its output.
CATCH = """
import socket, sys, threading
def tell(s, tcp):
    while True:
        if tcp:
            c, _ = s.accept()
            c.recv(4096)
            c.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n"
                      b"reached the inside\\n")
            c.close()
        else:
            data, peer = s.recvfrom(4096)
            s.sendto(data, peer)
for at in sys.argv[2:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET6, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((at, int(sys.argv[1])))
        if kind == socket.SOCK_STREAM:
            s.listen()
        threading.Thread(target=tell, args=(s, kind == socket.SOCK_STREAM),
                         daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def caught(port, attempt, *addresses):
    """The attempt while the world listens on this port too."""
    def ask(lab):
        p = lab.start("world", PYTHON, "-c", CATCH, str(port),
                      *(addresses or (SIX,)), stdout=-1)
        try:
            assert p.stdout.readline() == b"ready\n"
            return attempt(lab)
        finally:
            lab.stop(p)
    return ask


def to(name, port, at=SIX):
    return ("-g", "--resolve", "%s:%d:[%s]" % (name, port, at))


def got(r):
    return "got" in r.out


def quiet(lab, r):
    assert "got" not in r.out and "reached" not in r.out, r


def at_once(lab, r):
    quiet(lab, r)
    assert "error" in r.out and r.seconds < 1.5, r


def alert(lab, r):
    assert not reached(r) and r.seconds < 4, r
    assert "alert" in r.text.lower() or "ACCESS_DENIED" in r.text, r


def told(*words):
    """The 403 in words, and nothing else."""
    def closed(lab, r):
        assert "reached" not in r.out and r.seconds < 4, r
        assert all(w in r.out for w in words), r
    return closed


CASES = [
    Case("tls-name", curl("-k", *to("evil.test", 443),
                          "https://evil.test/"), reached, alert),
    Case("tls-name-split", trick("split", SIX, "evil.test"), reached,
         lambda lab, r: quiet(lab, r)),
    Case("tls-no-name", curl("-k", "-g", "https://[%s]/" % SIX), reached,
         lambda lab, r: quiet(lab, r)),
    Case("http-name", curl(*to("evil.test", 80), "http://evil.test/"),
         reached, told("no rule allows it", "evil.test", "form FW-1")),
    Case("http-address", program(TCP, SIX, "80", GET % ("[%s]" % SIX), ""),
         reached, told),
    Case("http-device", program(TCP, SIX, "80", EVIL, "device"), reached,
         told()),
    Case("tcp-address", program(TCP, SIX, "7000", "", ""), got,
         lambda lab, r: quiet(lab, r)),
    Case("udp", program(UDP, SIX, "9999", "x"), got, at_once),
    Case("udp-53", caught(53, program(UDP, SIX, "53", "x")), got,
         lambda lab, r: quiet(lab, r), logged=False),
    Case("tcp-53", caught(53, program(TCP, SIX, "53", EVIL, "")), got,
         lambda lab, r: quiet(lab, r), logged=False),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_an_allowed_name_works_end_to_end(gate):
    lab = gate.lab
    for scheme in ("https", "http"):
        r = lab.agent("curl", "-sS", "-6", "-m", "8",
                      scheme + "://six.test/")
        assert "reached six.test at " + SIX in r.out, r
    r = trick("split", SIX, "allowed.test")(lab)
    assert "reached allowed.test" in r.out, r


def test_the_forwarder_answers_over_ipv6(gate):
    """A question to any resolver's IPv6 address comes to the forwarder."""
    ask = ASK.replace("socket.AF_INET,", "socket.AF_INET6,")
    for via in ("udp", "tcp"):
        r = gate.lab.python(ask, SIX, "allowed.test", "1", via)
        assert "address 203.0.113.10" in r.out, r
        r = gate.lab.python(ask, SIX, "evil.test", "1", via)
        led_astray(r)


OLD_INSIDE = {"mapped": "::ffff:10.9.9.9", "nat64": "64:ff9b::a09:909",
              "6to4": "2002:a09:909::1", "ula": "fd00:9::9"}


@pytest.fixture(scope="module")
def inside(lab):
    """The world answers on these addresses too."""
    held = [a for a in OLD_INSIDE.values() if "ffff" not in a]
    for a in held:
        lab.ip("world", "addr", "add", a + "/128", "dev", "lo", "nodad")
    yield held
    for a in held:
        lab.ip("world", "addr", "del", a + "/128", "dev", "lo")
    lab.names(NAMES)


@pytest.mark.parametrize("mode", MODES)
def test_an_allowed_name_leads_to_no_inner_address(lab, inside, mode):
    """An AAAA record is judged by the IPv4 address that is in it."""
    lab.unguarded(mode)
    for how, at in OLD_INSIDE.items():
        direct = curl("--resolve", "six.test:80:10.9.9.9",
                      "http://six.test/") if how == "mapped" else \
            caught(80, curl(*to("six.test", 80, at), "http://six.test/"), at)
        assert reached(direct(lab)), how
    for how, at in OLD_INSIDE.items():
        lab.names({**NAMES, "six.test": [at]})
        lab.up(mode, ipv6="proxy")      # nothing is remembered
        r = curl(*to("six.test", 80), "http://six.test/")(lab)
        assert not reached(r) and "six.test" in r.out, (how, r)
        assert r.seconds < 3, (how, r)
    lab.names(NAMES)
    lab.down()


# ---- drop ----

def dropped_attempts():
    https = curl("-k", *to("six.test", 443), "https://six.test/")
    http = curl(*to("six.test", 80), "http://six.test/")
    return {
        "tls": (https, reached), "http": (http, reached),
        "tcp": (program(TCP, SIX, "7000", "", ""), got),
        "udp": (program(UDP, SIX, "9999", "x"), got),
        "udp-53": (caught(53, program(UDP, SIX, "53", "x")), got),
    }


@pytest.mark.parametrize("mode", MODES)
def test_drop_refuses_at_once(lab, mode):
    """What works with `ipv6: proxy` and without a guard: no packet of the
    agent's leaves, and it is told so, not left to wait."""
    attempts = dropped_attempts()
    lab.unguarded(mode)
    for name, (attempt, leaks) in attempts.items():
        assert leaks(attempt(lab)), name
    lab.up(mode, ipv6="drop")
    try:
        for name, (attempt, leaks) in attempts.items():
            r = lab.watched(attempt)
            assert not r.arrived and not leaks(r), (name, r)
            refused_with("Permission denied", "not permitted", "refused",
                         "connect", within=0.8)(lab, r)
    finally:
        lab.down()


@pytest.mark.parametrize("mode", MODES)
def test_w26_a_name_with_ipv6_only_is_refused_readably(lab, mode):
    """No route, or a silence, where the name's only address is: an answer
    in words and in time, never a client that hangs.  A name that has both
    families is served by the other one."""
    lab.unguarded(mode)
    direct = curl("http://six.test/")
    assert reached(direct(lab))
    lab.up(mode, ipv6="drop")
    via = lab.run(lab.space, "ip", "-6", "route", "show", "default").out
    via = re.search(r"via (\S+)", via).group(1)
    host = curl("--resolve", "six.test:80:203.0.113.10", "-w",
                "\n%{http_code}\n", "http://six.test/")
    both = curl("-4", "http://dual.test/")
    try:
        # The agent itself gets an answer without addresses, at once.
        r = direct(lab)
        assert r.status == 6 and "six.test" in r.err and r.seconds < 2, r
        # penstock's own IPv6 goes nowhere: first an error, then a silence
        lab.ip(lab.space, "-6", "route", "del", "default")
        r = host(lab)
        assert not reached(r) and r.seconds < 3, r
        assert "six.test" in r.out and re.search("^50[234]$", r.out, re.M), r
        assert "reached dual.test" in both(lab).out
        lab.ip(lab.space, "-6", "route", "add", "default", "via", via)
        lab.names({**NAMES, "six.test": ["2001:db8:113::99"],
                   "dual.test": ["2001:db8:113::99", "203.0.113.10"]})
        lab.up(mode, ipv6="drop")
        host = curl("-m", "20", "--resolve", "six.test:80:203.0.113.10",
                    "-w", "\n%{http_code}\n", "http://six.test/")
        r = host(lab)
        assert not reached(r) and r.seconds < 15, r
        assert "six.test" in r.out and re.search("^50[234]$", r.out, re.M), r
        r = both(lab)
        assert "reached dual.test" in r.out and r.seconds < 5, r
    finally:
        lab.names(NAMES)
        lab.ip(lab.space, "-6", "route", "replace", "default", "via", via)
        lab.down()
