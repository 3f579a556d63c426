# SPDX-License-Identifier: Apache-2.0
"""What a name is told to have: behind how many aliases, how much of it, and
for how long, where it is another thing each time."""
import os
import signal
import subprocess
import time

import pytest

from cases import ASK, curl, program, reached
from lab import HERE, NAMES, POLICY, PYTHON
from test_operators import pins
from test_pins import HOLD, reload

RESOLVER = "203.0.113.53"
METADATA = "169.254.169.254"
SETTINGS = {"extra": "dns: {denied_names: nxdomain}\n"}


def allow(*rules):
    return POLICY + "".join("    - {verdict: allow, %s}\n" % r for r in rules)


@pytest.fixture
def world(lab):
    """What its DNS server says is put back, whatever happens."""
    yield lab
    lab.down()
    lab.names(NAMES)


def chain(name, links):
    """So many aliases from the name to an address."""
    hops = [name] + ["h%d.%s" % (i, name.replace("wild", "far"))
                     for i in range(links)]
    return {**{a: {"CNAME": b} for a, b in zip(hops, hops[1:])},
            hops[-1]: ["203.0.113.10"]}


def test_b038_sixteen_aliases_and_no_more(world):
    lab = world
    fits, long, circle = ("%s.wild.test" % n for n in ("fits", "long",
                                                        "circle"))
    lab.names({**NAMES, **chain(fits, 16), **chain(long, 17),
               circle: {"CNAME": "round.far.test"},
               "round.far.test": {"CNAME": circle}})

    def ask(name):
        return lab.python(ASK, RESOLVER, name, "1", "tcp")

    lab.unguarded("gateway")
    for name in (fits, long):
        assert "address 203.0.113.10" in ask(name).out, name
    lab.up("gateway", **SETTINGS)
    assert "address 203.0.113.10" in ask(fits).out
    assert "at 203.0.113.10" in curl("-k", "https://%s/" % fits)(lab).out
    for name in (long, circle):
        r = ask(name)
        assert "rcode 2 answers 0" in r.out and r.seconds < 4, r
        r = curl("-k", "--resolve", name + ":443:203.0.113.10",
                 "https://%s/" % name)(lab)
        assert not reached(r), r
        d = lab.record(kind="dns", name=name)
        assert d["reason"] == "dns_servfail", d
    # and that is all that it costs
    assert "address 203.0.113.10" in ask("allowed.test").out


LARGE = """
import dns.message, dns.query, sys
q = dns.message.make_query(sys.argv[2], "TXT", use_edns=0, payload=1232)
r, tcp = dns.query.udp_with_fallback(q, sys.argv[1], 6)
print("tcp" if tcp else "udp", sum(len(s) for a in r.answer for t in a
                                    for s in t.strings))
"""


def test_b044_an_answer_of_64_kib_comes_whole(world):
    lab, size = world, 253 * 255 + 231
    rdata = (b"\xff" + b"x" * 255) * 253 + b"\xe7" + b"y" * 231
    lab.names({**NAMES, "big.test": {"raw": {"16": [rdata.hex()]}}})
    lab.unguarded("gateway")
    ask = (LARGE, RESOLVER, "big.test")
    assert lab.python(*ask).out == "tcp %d\n" % size
    lab.up("gateway", allow("hostname: big.test, dns: [TXT]"), **SETTINGS)
    for _ in range(2):              # asked for, and from what is kept
        assert lab.python(*ask).out == "tcp %d\n" % size
    assert lab.asked("big.test") == 4       # each way round: cut, and whole


# Looks a name up, finds the address harmless, looks it up again and goes
# there.
TWICE = """
import socket, sys
name = sys.argv[1]
try:
    print("checked", socket.gethostbyname(name))
    s = socket.create_connection((socket.gethostbyname(name), 80), 4)
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n"
              % name.encode())
    data = b""
    while part := s.recv(4096):
        data += part
    print(data.partition(b"\\r\\n\\r\\n")[2].decode())
except OSError as e:
    print("error", e)
"""


@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_b47_w31_a_name_that_turns_between_check_and_dial(world, mode):
    """Without a time to live, public and private in turn: whichever question
    it is that the private one answers, nobody goes there."""
    lab, name = world, "turn.test"
    turns = {name: {"turns": [["203.0.113.10"], ["10.9.9.9"]], "ttl": 0}}
    lab.names({**NAMES, **turns})
    lab.unguarded(mode)
    r = lab.watched(lambda lab: lab.python(TWICE, name), True)
    assert "checked 203.0.113.10" in r.out and "at 10.9.9.9" in r.out, r
    assert any(e.get("addr") == "10.9.9.9" for e in r.arrived), r
    lab.names({**NAMES, **turns})
    lab.up(mode, allow("hostname: " + name), **SETTINGS)
    attempts = [program(TWICE, name),
                curl("--resolve", name + ":80:203.0.113.66",
                     "http://%s/" % name), curl("http://%s/" % name)]
    got = set()
    for attempt in attempts * 3:
        r = lab.watched(attempt)
        assert not any(e.get("addr") == "10.9.9.9" for e in r.arrived), r
        got.add(reached(r))
    assert True in got
    assert {p["address"] for p in pins(lab, "--name", name)} == {
        "203.0.113.10"}


# A kept connection: a request now, and one at each signal.
KEPT = """
import http.client, signal, ssl, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
c = http.client.HTTPSConnection(sys.argv[1], timeout=4,
                                context=ssl._create_unverified_context())
while True:
    try:
        c.request("GET", "/")
        print(c.getresponse().read().decode().strip(), flush=True)
        c.auto_open = 0
    except (OSError, http.client.HTTPException) as e:
        print("failed", e, flush=True)
    signal.sigwait([signal.SIGUSR1])
"""
OLD_S = 45


def test_what_is_open_stays_while_addresses_rotate(world):
    """By name and without one, over a reload: each question meanwhile is told
    another address, and what begins then goes to that."""
    lab, name = world, "pool.wild.test"
    hosts = ["203.0.113.%d" % n for n in (10, 11, *range(70, 76))]

    def rotate(to):
        lab.names({**NAMES, name: {"A": [to], "ttl": 1},
                   "echo.test": {"A": ["203.0.113.15", to], "ttl": 1}})

    def look(names=(name, "echo.test")):
        for n in names:
            assert lab.agent("getent", "ahostsv4", n).status == 0

    rotate(hosts[0])
    lab.up("gateway", **SETTINGS)
    look()
    began = time.monotonic()
    open_ = [lab.start(lab.agent_space, *lab.AS_AGENT, PYTHON, "-c", code, to,
                       stdout=subprocess.PIPE)
             for code, to in ((KEPT, name), (HOLD, "203.0.113.15"))]
    try:
        assert b"at " + hosts[0].encode() in open_[0].stdout.readline()
        assert b"ready" in open_[1].stdout.readline()
        for turn in range(2, 10):
            rotate(hosts[turn % len(hosts)])
            time.sleep(OLD_S / 8)
            look()
            if turn == 5:
                reload(lab, POLICY + "# another digest\n")
        assert time.monotonic() - began > OLD_S
        for p in open_:
            p.send_signal(signal.SIGUSR1)
        assert b"at " + hosts[0].encode() in open_[0].stdout.readline()
        assert b"again" in open_[1].stdout.readline()
        assert "at " + hosts[1] in curl("-k", "https://%s/" % name)(lab).out
    finally:
        for p in open_:
            lab.stop(p)


@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_n37_a_resolver_at_a_link_local_address(world, mode):
    """As a cloud has one, at the address of its metadata: that is asked for
    names by penstock, and is nobody's else."""
    lab = world
    server = lab.start("world", PYTHON, HERE + "/dnsserver.py", METADATA, "53",
                       lab.dir + "/zone", lab.dir + "/asked.cloud", stdout=-1)
    resolv = "/etc/netns/%s/resolv.conf" % lab.ns(
        "shared" if mode == "shared" else "gateway")
    with open(resolv) as f:
        before = f.read()

    def ask(name):
        return lab.python(ASK, METADATA, name, "1", "udp")

    ways = [curl("http://%s/" % METADATA), curl("http://meta.test/")]
    try:
        assert server.stdout.readline() == b"ready\n"
        lab.unguarded(mode)
        assert "address 203.0.113.10" in ask("evil.test").out
        assert all(reached(way(lab)) for way in ways)
        with open(resolv, "w") as f:
            f.write("nameserver %s\n" % METADATA)
        lab.up(mode, POLICY.replace("[%s]" % RESOLVER, "[system]"),
               **SETTINGS)
        assert "names are asked of %s:53 of /etc/resolv.conf" % METADATA in \
            lab.log()
        assert METADATA in lab.record(kind="policy")["detail"]
        assert "address 203.0.113.10" in ask("allowed.test").out
        assert os.path.getsize(lab.dir + "/asked.cloud") > 0
        r = ask("evil.test")
        assert "rcode 3" in r.out and "address" not in r.out, r
        for way in ways:
            r = lab.watched(way)
            assert not reached(r) and not any(
                e.get("addr") == METADATA for e in r.arrived), r
    finally:
        lab.down()
        lab.stop(server)
        with open(resolv, "w") as f:
            f.write(before)
