# SPDX-License-Identifier: Apache-2.0
"""Ways to ask another resolver than the front, or to ask the front for more
than an address; and aliases, of which each name needs a rule of its own."""
import json
import os
import signal
import time

import pytest

from cases import (ASK, GET, TCP, UDP, Case, check_pair, curl, program,
                   reached)
from lab import HERE, NAMES, POLICY, PYTHON
from packets import SOCKET, heard, link
from test_ipv6 import caught
from test_life import pids
from test_pins import pinned, reload

OTHER = "203.0.113.66"          # a resolver of no rule
FOUR = "203.0.113.10"
MAPPED = "::ffff:" + FOUR
EVIL = GET % "evil.test"
SIX = "2001:db8:113::10"
SETTINGS = {"extra": "dns: {denied_names: nxdomain}\n"}
ZONE = {**NAMES, "zone.wild.test": {"A": ["203.0.113.10"],
                                    "raw": {"252": ["00"], "251": ["00"]}}}

# On the agent's own link: a group or a broadcast, and an answer.
EAR = """
import socket, struct, sys
dev, port, group = sys.argv[1:]
six = ":" in group
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET,
                  socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
s.bind(("", int(port)))
index = struct.pack("I", socket.if_nametoindex(dev))
if six:
    s.setsockopt(41, 20, socket.inet_pton(socket.AF_INET6, group) + index)
elif not group.endswith(".255"):
    s.setsockopt(0, 35, socket.inet_aton(group) + bytes(4) + index)
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(9000)
    print("reached the neighbour", flush=True)
    s.sendto(data, peer)
"""


@pytest.fixture(scope="module", autouse=True)
def elsewhere(lab):
    """Another resolver, which knows what the first one does."""
    lab.names(ZONE)
    p = lab.start("world", PYTHON, HERE + "/dnsserver.py", OTHER, "53",
                  lab.dir + "/zone", lab.dir + "/asked.other", stdout=-1)
    assert p.stdout.readline() == b"ready\n"
    yield
    lab.stop(p)
    lab.names(NAMES)


def got(r):
    return "got" in r.out


def quiet(lab, r):
    assert "got" not in r.out and "reached" not in r.out, r


def answered(r):
    return "address 203.0.113.10" in r.out


def not_there(lab, r):
    assert "rcode 3" in r.out and "address" not in r.out, r


def refused(lab, r):
    assert "rcode 5 answers 0" in r.out, r


def ask(server, name, kind, via):
    return program(ASK, server, name, kind, via)


def group(port, at, options=""):
    def send(lab):
        return heard(lab, link(lab)[0], (EAR, link(lab)[1], port, at),
                     lambda lab: lab.python(
                         SOCKET, "udp", at, port, options, "x"))
    return send


CASES = [
    Case("udp-53-W2-B46", ask(OTHER, "evil.test", "1", "udp"), answered,
         not_there, logged=False),
    Case("tcp-53-W1", ask(OTHER, "evil.test", "1", "tcp"), answered,
         not_there, logged=False),
    Case("tcp-53-no-question-W1-B46",
         caught(53, program(TCP, FOUR, "53", EVIL, ""), MAPPED), reached,
         quiet, logged=False),
    Case("tcp6-53-W3", caught(53, program(TCP, SIX, "53", EVIL, "")),
         reached, quiet, logged=False),
    Case("udp6-53-W3", caught(53, program(UDP, SIX, "53", "x")), got, quiet,
         logged=False),
    Case("dot-B43", caught(853, program(TCP, FOUR, "853", EVIL, ""), MAPPED),
         reached, lambda lab, r: not_inside(r), logged=False),
    Case("doq-B43", caught(853, program(UDP, FOUR, "853", "x"), MAPPED), got,
         quiet, logged=False),
    Case("doh-by-name-B42",
         curl("-k", "--resolve", "dns.google:443:" + OTHER,
              "https://dns.google/?dns=AAAB"), reached, quiet),
    Case("doh-by-address-B42", curl("-k", "https://%s/?dns=AAAB" % OTHER),
         reached, quiet),
    Case("doh-under-an-allowed-name-B42",
         curl("-k", "--connect-to", "allowed.test:443:%s:443" % OTHER,
              "https://allowed.test/?dns=AAAB"),
         lambda r: "at " + OTHER in r.out,
         lambda lab, r: elsewhere_not(r)),
    Case("mdns-B43", group("5353", "224.0.0.251"), reached, quiet,
         logged=False),
    Case("mdns6-B43", group("5353", "ff02::fb"), reached, quiet,
         logged=False),
    Case("llmnr-B43", group("5355", "224.0.0.252"), reached, quiet,
         logged=False),
    Case("netbios-B43", group("137", "255.255.255.255", "broadcast device"),
         reached, quiet, logged=False),
    Case("axfr", ask("203.0.113.53", "zone.wild.test", "252", "tcp"),
         lambda r: "answers 1" in r.out, refused, logged=False),
    Case("ixfr", ask("203.0.113.53", "zone.wild.test", "251", "udp"),
         lambda r: "answers 1" in r.out, refused, logged=False),
]


def not_inside(r):
    """Judged as what it is: a request for a name."""
    assert "reached the inside" not in r.out and " 403 " in r.out, r


def elsewhere_not(r):
    assert OTHER not in r.out, r


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


# One chain of three for each place that a rule can have in it.
CHAINS = {}
for top in ("one", "two", "three", "four"):
    CHAINS.update({"first.%s.test" % top: {"CNAME": "middle.%s.test" % top},
                   "middle.%s.test" % top: {"CNAME": "last.%s.test" % top},
                   "last.%s.test" % top: ["203.0.113.10"]})
RULES = ["first.one.test", "middle.two.test", "last.three.test"]


def test_b038_a_rule_is_for_its_name_and_no_other_of_the_chain(lab):
    lab.names({**ZONE, **CHAINS})
    get = {name: ("curl", "-sSk", "-m", "5", "--resolve",
                  name + ":443:203.0.113.10", "https://%s/" % name)
           for name in CHAINS}
    try:
        lab.unguarded("gateway")
        for name in CHAINS:
            r = lab.python(ASK, "203.0.113.53", name, "1", "udp")
            assert answered(r) and reached(lab.agent(*get[name])), name
        lab.up("gateway", POLICY + "".join(
            "    - {verdict: allow, hostname: %s}\n" % n for n in RULES),
            **SETTINGS)
        for name in CHAINS:
            r = lab.python(ASK, "203.0.113.53", name, "1", "udp")
            assert answered(r) == (name in RULES), (name, r)
            r = lab.agent(*get[name])
            assert reached(r) == (name in RULES), (name, r)
    finally:
        lab.down()
        lab.names(ZONE)


def test_b040_without_a_time_to_live_each_connection_asks_anew(lab):
    """And has the address of now."""
    name, ask = "now.wild.test", ("curl", "-sSk", "-m", "5",
                                  "https://now.wild.test/")
    lab.names({**ZONE, name: {"A": ["203.0.113.10"], "ttl": 0}})
    try:
        lab.up("gateway", **SETTINGS)
        before = lab.asked(name)
        for _ in range(3):
            assert "at 203.0.113.10" in lab.agent(*ask).out
        assert 3 <= lab.asked(name) - before <= 12
        lab.names({**ZONE, name: {"A": ["203.0.113.11"], "ttl": 0}})
        r = lab.agent(*ask)
        assert "at 203.0.113.11" in r.out, r
    finally:
        lab.down()
        lab.names(ZONE)


def test_b041_a_failure_does_not_stay(lab):
    """That it failed is kept for a moment, and never for long."""
    name = "ill.wild.test"
    ask = (ASK, "203.0.113.53", name, "1", "udp")
    lab.names({**ZONE, name: {"rcode": "SERVFAIL"}})
    try:
        lab.up("gateway", **SETTINGS)
        assert "rcode 2" in lab.python(*ask).out
        asked = lab.asked(name)
        assert "rcode 2" in lab.python(*ask).out
        assert lab.asked(name) == asked
        lab.names({**ZONE, name: ["203.0.113.10"]})
        end = time.monotonic() + 8
        while not answered(r := lab.python(*ask)):
            assert time.monotonic() < end, r
            time.sleep(0.5)
    finally:
        lab.down()
        lab.names(ZONE)


# first choice, itself; HTTP/3; the other resolver's address as its own
HINT = "0001" "00" "00010003026833" "00040004cb007142"


def test_b050_a_hint_leads_nowhere_by_itself(lab):
    name = "hint.wild.test"
    lab.names({**ZONE, name: {"A": ["203.0.113.10"], "raw": {"65": [HINT]}}})
    ask = (ASK, "203.0.113.53", name, "65", "udp")
    there = ("curl", "-sSk", "-m", "5", "--resolve",
             "%s:443:%s" % (name, OTHER), "https://%s/" % name)
    try:
        lab.unguarded("gateway")
        assert "answers 1" in lab.python(*ask).out
        assert "at " + OTHER in lab.agent(*there).out
        lab.up("gateway", **SETTINGS)
        assert "rcode 0" in lab.python(*ask).out
        r = lab.watched(lambda lab: lab.agent(*there), True)
        assert "at 203.0.113.10" in r.out and OTHER not in r.out, r
        assert not any(e.get("addr") == OTHER for e in r.arrived), r
        r = lab.python(UDP, OTHER, "443", "x")
        assert "error" in r.out and r.seconds < 1.5, r
    finally:
        lab.down()
        lab.names(ZONE)


def taken_by_the_next(lab):
    """The resolver meets the new servers when it starts: the one before never
    heard of them."""
    first = pids(lab, "resolver")
    for pid in first:
        os.kill(pid, signal.SIGSTOP)
    reload(lab, POLICY)
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    lab.wait(lambda: set(pids(lab, "resolver")) - set(first), 10, "the next")


@pytest.mark.parametrize("taken", [lambda lab: reload(lab, POLICY),
                                   taken_by_the_next],
                         ids=["reload", "start"])
def test_a_name_that_moves_into_a_zone_is_asked_there(lab, taken):
    """What the servers before have said of it is neither told nor dialled,
    also where the client still has it; what stays pinned is asked for anew,
    though its answer would have lasted."""
    name, zone = "moved.wild.test", lab.dir + "/zone.corp"
    ask = (ASK, "203.0.113.53", name, "1", "udp")
    old = ("curl", "-sSk", "-m", "5", "--resolve", name + ":443:203.0.113.10",
           "https://%s/" % name)
    lab.names({**ZONE, name: ["203.0.113.10"]})
    with open(zone, "w") as f:
        json.dump({name: {"A": ["203.0.113.11"]},
                   "echo.test": {"A": ["203.0.113.99"]}}, f)
    p = lab.start("world", PYTHON, HERE + "/dnsserver.py", "203.0.113.53",
                  "5353", zone, lab.dir + "/asked.corp", stdout=-1)
    try:
        assert p.stdout.readline() == b"ready\n"
        lab.up("gateway", **SETTINGS)
        assert answered(lab.python(*ask))
        assert "at 203.0.113.10" in lab.agent(*old).out
        assert lab.agent("getent", "hosts", "echo.test").status == 0
        with open(lab.conf) as f:
            text = f.read()
        moves = ", ".join("{suffix: %s, resolvers: [\"203.0.113.53:5353\"]}"
                          % n for n in (name, "echo.test"))
        with open(lab.conf, "w") as f:
            f.write(text.replace("dns: {", "dns: {zones: [%s], " % moves))
        taken(lab)
        r = lab.agent(*old)
        assert "at 203.0.113.11" in r.out, r
        assert "address 203.0.113.11" in lab.python(*ask).out
        if taken is not taken_by_the_next:
            lab.wait(lambda: pinned(lab, "echo.test", "203.0.113.99"), 5,
                     "the kept name's own")
        assert not pinned(lab, "echo.test", "203.0.113.15")
    finally:
        lab.down()
        lab.stop(p)
        lab.names(ZONE)


def test_w5_rules_of_a_start_of_their_own_close_dns_too(lab):
    """As an init container sets them: nothing of its environment is needed,
    and nothing is open until somebody answers."""
    def others():
        return [lab.python(ASK, server, "evil.test", "1", via)
                for server in (OTHER, "203.0.113.53")
                for via in ("udp", "tcp")]

    lab.unguarded("shared")
    assert all(answered(r) for r in others())
    lab.config("shared", **SETTINGS)
    try:
        r = lab.run(lab.space, lab.binary, "rules", "apply", "-c", lab.conf,
                    env={"PATH": os.environ["PATH"]})
        assert r.status == 0, r
        assert not any(answered(r) for r in others())
        lab.serve(env={"PATH": os.environ["PATH"]})
        for r in others():
            assert "rcode 3" in r.out and not answered(r), r
    finally:
        lab.down()
