# SPDX-License-Identifier: Apache-2.0
"""Below names: other protocols, other families, other ways out of the
namespace, and the rules themselves."""
import os
import shutil
import struct
import time

import pytest

from cases import (ASK, GET, TCP, UDP, Case, check_pair, curl, led_astray,
                   program, reached, refused_with)
from lab import HERE, PYTHON
from packets import (BIND, FRAME, JOIN, OUT, SETUID, SOCKET, beside,
                     neighbour, raw, root, tapped)

EVIL = GET % "evil.test"

PING = """
import os, socket, struct, sys
kind = int(sys.argv[1])
s = socket.socket(socket.AF_INET, kind, 1)
s.settimeout(1.5)
p = struct.pack(">BBHHH", 8, 0, 0, 7, 1) + b"out"
c = sum(struct.unpack(">%dH" % ((len(p) + 1) // 2), p + b"\\0" * (len(p) % 2)))
c = ~((c >> 16) + (c & 0xffff)) & 0xffff
try:
    s.sendto(p[:2] + struct.pack(">H", c) + p[4:], ("203.0.113.10", 0))
    while True:
        d = s.recv(200)
        if d[-3:] == b"out" and (d[0] == 0 or d[20] == 0):
            print("got echo")
            break
        if kind == 3 and d[20] != 0:
            print("got type", d[20])
            break
except OSError as e:
    print("error", type(e).__name__, e)
"""

# A UDP datagram made by hand below the kernel's own UDP.
RAW = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)
data = b"raw-out"
try:
    s.sendto(struct.pack(">HHHH", 5555, 9999, 8 + len(data), 0) + data,
             ("203.0.113.10", 0))
    print("sent")
except OSError as e:
    print("error", type(e).__name__, e)
"""


def raw_attempt(lab):
    before = len(lab.seen(what="udp", data="raw-out"))
    r = lab.run(lab.agent_space, "/usr/bin/python3", "-c", RAW)
    time.sleep(0.3)
    if len(lab.seen(what="udp", data="raw-out")) > before:
        r.out += "reached the server\n"
    return r


def got(r):
    return "got" in r.out


def quiet(lab, r):
    assert "got" not in r.out and "reached" not in r.out, r


def at_once(lab, r):
    quiet(lab, r)
    assert "error" in r.out and r.seconds < 1.5, r


def near(code, which, *args, first=()):
    """The program, to an address of the neighbour, which listens."""
    return beside(lambda lab: lab.python(code, *first, neighbour(lab, which),
                                         *args))


def sock(kind, to, port, options, data):
    return program(SOCKET, kind, to, port, options, data)


def frame(kind, bypass=""):
    def send(lab):
        mac = lab.run("gateway", "cat", "/sys/class/net/ag0/address").out
        return lab.run("agent", PYTHON, "-c", FRAME, mac.strip(), kind,
                       bypass)
    return tapped(send)


MARKS = """
import subprocess, sys
for mark in ("0x1", "0x2", "0x4", "0x7", "0xffffffff"):
    subprocess.run([sys.executable, "-c", *sys.argv[1:5], "mark=" + mark,
                    sys.argv[5]])
"""


def marked(kind, port, data):
    """As root, with each mark that the rules know."""
    return root(MARKS, SOCKET, kind, "203.0.113.10", port, data)


def reuse(lab):
    """The agent takes over the addresses and ports of a flow that an exempt
    process began."""
    ask = (PYTHON, "-c", SOCKET, "udp", "203.0.113.10", "9999",
           "source=40001", "x")
    r = lab.run("shared", "setpriv", "--reuid", "1337", "--clear-groups",
                *ask)
    assert got(r), r
    return lab.watched(lambda lab: lab.agent(*ask))


SIX = "2001:db8:113::10"
FOUR = "203.0.113.10"
SCTP = struct.pack(">HHIIBBH", 5555, 9999, 0, 0, 1, 0, 28) + OUT * 3
SYN = struct.pack(">HHIIBBHHH", 5556, 7000, 1, 0, 80, 2, 9999, 0, 0) + OUT


def header(source):
    """An IPv4 packet, header and all, of a protocol that nobody knows."""
    return struct.pack(">BBHHHBBH4B4B", 69, 0, 20 + len(OUT), 1, 0, 64, 253,
                       0, *map(int, source.split(".")),
                       *map(int, FOUR.split("."))) + OUT


# What a row here cannot show, and why:
# - AF_PACKET and AF_XDP in shared mode: nothing below IP is the rules' to
#   close; an agent there must not have CAP_NET_RAW (penstock's manual says
#   so, `ping-raw-root` and its like are a second line).
# - AF_XDP in gateway mode: it puts frames on the same link as AF_PACKET.
# - setuid to penstock's uid by a root that has CAP_SETUID: in shared mode it
#   is penstock then; `setuid` and the test of a setuid file show that an
#   agent without it, with no_new_privs, does not get there.
# - SCTP and DCCP sockets: the kernel may be built without; the packets are
#   made by hand, which the guard cannot tell from theirs.
# - LSRR: the kernel refuses source routes with or without a guard.
# - AF_VSOCK: no packet of it comes by netfilter; seccomp's to close.
CASES = [
    Case("udp", program(UDP, "203.0.113.10", "9999", "x"), got, at_once),
    Case("quic-udp443-B18", program(UDP, "203.0.113.10", "443", "x"), got,
         at_once),
    Case("udp6-B51", program(UDP, "2001:db8:113::10", "9999", "x"), got,
         at_once),
    Case("tcp6-B51", curl("-6", "http://[2001:db8:113::10]/"), reached,
         refused_with("Permission denied", "refused", "unreachable",
                      "connect", within=2)),
    Case("tcp-address-B71", program(TCP, "203.0.113.10", "7000", "", ""),
         got, lambda lab, r: quiet(lab, r)),
    Case("http-to-address", program(TCP, "203.0.113.10", "80", EVIL, ""),
         reached, lambda lab, r: (quiet_403(r))),
    Case("v4-mapped", program(TCP, "::ffff:203.0.113.10", "80", EVIL, ""),
         reached, lambda lab, r: quiet_403(r)),
    Case("bind-to-device", program(TCP, "203.0.113.10", "80", EVIL, "device"),
         reached, lambda lab, r: not_reached(r)),
    Case("ping-socket", program(PING, "2"), got, lambda lab, r: quiet(lab, r),
         logged=False),
    Case("ping-raw-root", root(PING, "3"), lambda r: "got echo" in r.out,
         lambda lab, r: no_echo(r), logged=False),
    Case("raw-udp-root", raw_attempt, reached, quiet),
    Case("dns-direct-B41",
         program(ASK, "203.0.113.53", "evil.test", "1", "tcp"),
         lambda r: "address 203" in r.out, lambda lab, r: no_name(r),
         logged=False),
    Case("dns-udp-B39", program(ASK, "203.0.113.53", "evil.test", "1", "udp"),
         lambda r: "address 203" in r.out, lambda lab, r: no_name(r),
         logged=False),
    Case("udp-root", root(UDP, FOUR, "9999", "x"), got, at_once),
    Case("udp-device", sock("udp", FOUR, "9999", "device", "x"), got, quiet),
    Case("udp-unicast-if", sock("udp", FOUR, "9999", "unicast", "x"), got,
         quiet),
    Case("udp-pktinfo", sock("udp", FOUR, "9999", "info", "x"), got, quiet),
    Case("tcp-unicast-if", sock("tcp", FOUR, "80", "unicast", EVIL), reached,
         lambda lab, r: quiet_403(r)),
    Case("tcp-record-route", sock("tcp", FOUR, "80", "route", EVIL), reached,
         lambda lab, r: not_reached(r)),
    Case("udp-record-route", sock("udp", FOUR, "9999", "route", "x"), got,
         quiet),
    Case("udp-fragments", program(UDP, FOUR, "9999", "x" * 5000), got,
         at_once),
    Case("udp-lite", tapped(sock("lite", FOUR, "9999", "", "pstk-out")),
         reached, quiet, logged=False),
    Case("udp-lite6", tapped(sock("lite", SIX, "9999", "", "pstk-out")),
         reached, quiet, logged=False),
    Case("udp-mark-root", marked("udp", "9999", "x"), got,
         lambda lab, r: quiet(lab, r)),
    Case("tcp-mark-root", marked("tcp", "80", EVIL), reached,
         lambda lab, r: quiet_403(r)),
    Case("raw-sctp-root", raw(FOUR, 132, SCTP), reached, quiet,
         logged=False),
    Case("raw-dccp-root", raw(FOUR, 33, OUT * 3), reached, quiet,
         logged=False),
    Case("raw-udp-lite-root", raw(FOUR, 136, OUT * 3), reached, quiet,
         logged=False),
    Case("raw-unknown-root", raw(FOUR, 253, OUT), reached, quiet,
         logged=False),
    Case("raw-device-root", raw(FOUR, 253, OUT, "device"), reached, quiet,
         logged=False),
    Case("raw-mark-root", raw(FOUR, 253, OUT, "mark=3"), reached, quiet,
         logged=False),
    Case("raw-syn-root", raw(FOUR, 6, SYN), reached, quiet, logged=False),
    Case("raw-header-root", raw(FOUR, 255, header("0.0.0.0")), reached,
         quiet, modes=("shared",), logged=False),
    Case("raw-forged-root", raw(FOUR, 255, header("203.0.113.200")), reached,
         quiet, logged=False),
    Case("raw6-sctp-root", raw(SIX, 132, SCTP), reached, quiet,
         logged=False),
    Case("raw6-unknown-root", raw(SIX, 253, OUT), reached, quiet,
         logged=False),
    Case("raw6-options-root", raw(SIX, 60, bytes([253, 0, 1, 4, 0, 0, 0, 0]) +
                                  OUT), reached, quiet, logged=False),
    Case("raw6-routing-root", raw(SIX, 43, bytes([253, 2, 4, 0, 0, 0, 0, 0]) +
                                  bytes(16) + OUT), reached, quiet,
         logged=False),
    Case("icmp6-echo-root", raw(SIX, 58, bytes([128, 0, 0, 0, 0, 7, 0, 1]) +
                                OUT), reached, quiet, logged=False),
    # what neighbour discovery may do is not an agent's to do
    Case("icmp6-solicit-root", raw(SIX, 58, bytes([135, 0] + [0] * 22) + OUT,
                                   "hops"), reached, quiet, logged=False),
    Case("frame4", frame("4"), reached, quiet, modes=("gateway",)),
    Case("frame6", frame("6"), reached, quiet, modes=("gateway",),
         logged=False),
    Case("frame-bypass", frame("4", "bypass"), reached, quiet,
         modes=("gateway",)),
    Case("near-tcp", near(TCP, "4", "7777", "", ""), reached, quiet,
         logged=False),
    Case("near-tcp6", near(TCP, "6", "7777", "", ""), reached, quiet,
         logged=False),
    Case("near-tcp-link-local", near(SOCKET, "link", "7777", "", "x",
                                     first=("tcp",)), reached, quiet,
         logged=False),
    Case("near-udp", near(UDP, "4", "7778", "x"), reached, at_once,
         logged=False),
    Case("near-udp6", near(UDP, "6", "7777", "x"), reached, at_once,
         logged=False),
    Case("near-udp-link-local", near(SOCKET, "link", "7777", "", "x",
                                     first=("udp",)), reached, quiet,
         logged=False),
    Case("multicast", beside(sock("udp", "239.255.7.7", "7778", "", "x")),
         reached, quiet, logged=False),
    Case("multicast6", beside(sock("udp", "ff05::7:7", "7777", "", "x")),
         reached, quiet, logged=False),
    Case("broadcast", beside(sock("udp", "255.255.255.255", "7778",
                                  "broadcast device", "x")), reached, quiet,
         logged=False),
    Case("join-group", tapped(program(JOIN), bytes([239, 255, 7, 9])),
         reached, quiet, modes=("shared",), logged=False),
    Case("join-group6", tapped(program(JOIN), bytes([255, 5] + [0] * 11 +
                                                    [7, 0, 9])),
         reached, quiet, modes=("shared",), logged=False),
    Case("setuid", program(SETUID + TCP, FOUR, "80", EVIL, ""), reached,
         lambda lab, r: stays_itself(r), modes=("shared",)),
    Case("five-tuple-reuse", reuse, got, at_once, modes=("shared",),
         logged=False),
]


def stays_itself(r):
    assert "became" not in r.out and r.out.count("PermissionError") == 4, r
    quiet_403(r)


def quiet_403(r):
    assert "reached" not in r.out and " 403 " in r.out, r


def not_reached(r):
    assert "reached" not in r.out, r


def no_echo(r):
    assert "got echo" not in r.out, r


def no_name(r):
    led_astray(r)


DOCKER_DNS = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.11", 44381))
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""


def test_w15_hidden_port_of_the_engine_resolver(lab):
    """127.0.0.11 in a container: its real port is closed to the agent."""
    lab.unguarded("shared")
    server = lab.start("shared", "/usr/bin/python3", "-c", DOCKER_DNS,
                       stdout=-1)
    try:
        assert server.stdout.readline() == b"ready\n"
        assert got(lab.python(UDP, "127.0.0.11", "44381", "x"))
        lab.up("shared")
        at_once(lab, lab.python(UDP, "127.0.0.11", "44381", "x"))
    finally:
        lab.stop(server)
        lab.down()


def test_w15_b45_engine_resolver_is_answered_by_the_forwarder(lab):
    """127.0.0.11 port 53 in a container: policy decides there too."""
    lab.unguarded("shared")
    server = lab.start("shared", PYTHON, "-c",
                       DOCKER_DNS.replace("44381", "53"), stdout=-1)
    try:
        assert server.stdout.readline() == b"ready\n"
        assert got(lab.python(UDP, "127.0.0.11", "53", "x"))
        lab.up("shared")
        quiet(lab, lab.python(UDP, "127.0.0.11", "53", "x"))
        no_name(lab.python(ASK, "127.0.0.11", "evil.test", "1", "udp"))
        r = lab.python(ASK, "127.0.0.11", "allowed.test", "1", "udp")
        assert "address 203.0.113.10" in r.out, r
    finally:
        lab.stop(server)
        lab.down()


@pytest.mark.parametrize("mode", ["shared", "gateway"])
def test_the_listener_itself_is_no_way_out(lab, mode):
    """Where a proxy without a policy serves, penstock ends the connection
    and makes none to itself."""
    lab.unguarded(mode)
    lab.plain()
    ask = [(TCP, lab.proxy_address, "15001",
            (GET % name).replace("GET /", "GET http://203.0.113.10/"), "")
           for name in ("evil.test", "allowed.test")]
    for args in ask:
        assert reached(lab.python(*args))
    lab.up(mode)
    try:
        for args in ask + [(a[0], a[1], a[2], GET % "allowed.test", a[4])
                           for a in ask[:1]]:
            r = lab.watched(lambda lab, args=args: lab.python(*args))
            assert not reached(r) and not r.arrived and r.seconds < 3, r
        r = lab.run(lab.space, "ss", "-Htn", "state", "established",
                    "( sport = :15001 or dport = :15001 )")
        assert r.status == 0 and r.out.count("\n") < 4, r
        assert lab.get("/readyz")[0] == 200
    finally:
        lab.down()


OURS = [("udp", "127.0.0.1", "15053"), ("udp", "0.0.0.0", "15053"),
        ("tcp", "127.0.0.1", "15053"), ("tcp", "127.0.0.1", "15001"),
        ("tcp", "0.0.0.0", "15001"), ("udp", "::1", "15053"),
        ("tcp", "::1", "15001")]


def test_an_agent_cannot_sit_on_penstocks_ports(lab):
    lab.unguarded("shared")
    for where in OURS:
        assert "bound" in lab.python(BIND, *where).out, where
    lab.up("shared", ipv6="proxy")
    try:
        for where in OURS:
            r = lab.python(BIND, *where)
            assert "bound" not in r.out and "in use" in r.out, (where, r)
    finally:
        lab.down()


def test_b071_admin_port_is_closed_to_the_agent(lab):
    """On a TCP port the rules keep the agent away; root and the exempt uids
    may."""
    ask = ("/usr/bin/curl", "-sS", "-m", "3", "http://127.0.0.1:9901/livez")
    lab.unguarded("shared")
    lab.forward(False)
    lab.config("shared")
    with open(lab.conf) as f:
        text = f.read()
    with open(lab.conf, "w") as f:
        f.write(text.replace("unix:" + lab.admin, "127.0.0.1:9901"))
    ours = ("setpriv", "--reuid", "1337", "--clear-groups", *ask)
    lab.ready, ready = lambda: "ok" in lab.run("shared", *ours).out, lab.ready
    try:
        lab.serve("--rules", "external")    # and nobody has made any
        r = lab.agent(*ask)
        assert r.status == 0 and "ok" in r.out, r
        lab.stop(lab.penstock)
        r = lab.verb("rules", "apply", "-c", lab.conf)
        assert r.status == 0, r
        lab.serve()
        r = lab.agent(*ask)
        assert r.status == 7 and r.seconds < 2, r
        # the operator: root in the namespace
        r = lab.run("shared", *ask)
        assert r.status == 0 and "ok" in r.out, r
    finally:
        lab.ready = ready
        lab.down()


FROM = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", 4040))
s.settimeout(1)
try:
    s.connect(("203.0.113.10", 9999))
    s.send(sys.argv[1].encode())
    print("got", s.recv(100).decode())
except OSError as e:
    print("error", e)
"""


def test_an_agent_in_a_flow_of_penstocks_sends_nothing(lab):
    """From a port that penstock had, to where it sent from there: that flow
    is one that is not captured, and its mark opens what no socket owns."""
    ours = ("setpriv", "--reuid", "1337", "--clear-groups", PYTHON, "-c",
            FROM, "ours")
    guards = ("flt/rest", "post/agent")
    lab.up("shared")
    try:
        for gone in (guards, *((g,) for g in guards), ()):
            r = lab.verb("rules", "apply", "-c", lab.conf)
            assert r.status == 0, r
            lab.without(*gone)
            r = lab.run("shared", *ours)
            assert r.out == "got ours\n", (gone, r)
            r = lab.watched(lambda lab: lab.python(FROM, "agents"))
            assert (r.out == "got agents\n") == (gone == guards), (gone, r)
            assert bool(r.arrived) == (gone == guards), (gone, r)
    finally:
        lab.down()


PORTS = ("25", "853", "3306", "5432", "6379", "8443", "65535")
SERVE = """
import select, socket, sys
all = []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for port in sys.argv[2:]:
        s = socket.socket(socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((sys.argv[1], int(port)))
        if kind == socket.SOCK_STREAM:
            s.listen(16)
        all.append(s)
print("ready", flush=True)
while True:
    for s in select.select(all, [], [])[0]:
        if s.type == socket.SOCK_STREAM:
            c, _ = s.accept()
            c.sendall(b"here")
            c.close()
        else:
            s.sendto(b"here", s.recvfrom(10)[1])
"""
OPEN = """
import socket, sys, threading

def knock(kind, port, source):
    with socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(2)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("", source))
        try:
            s.connect((sys.argv[1], port))
            s.send(b"x")
            print(port, source, s.recv(10))
        except OSError:
            pass

for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for source in (0, 80, 443):
        threads = [threading.Thread(target=knock, args=(kind, int(p), source))
                   for p in sys.argv[2:]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
"""


@pytest.mark.parametrize("mode,at", [("gateway", "203.0.113.10"),
                                     ("gateway", "198.18.0.1"),
                                     ("shared", "203.0.113.10")])
def test_b071_no_other_port_is_open(lab, mode, at):
    """By TCP and UDP, from any source port, of a name that is allowed at 80
    and 443, and of the gateway itself."""
    lab.unguarded(mode)
    here = "world" if at.startswith("203") else "gateway"
    server = lab.start(here, PYTHON, "-c", SERVE, at, *PORTS, stdout=-1)
    lab.run(lab.agent_space, "sysctl", "-qw",
            "net.ipv4.ip_unprivileged_port_start=0")
    try:
        assert server.stdout.readline() == b"ready\n"
        r = lab.python(OPEN, at, *PORTS, timeout=60)
        assert r.out.count("here") == len(PORTS) * 2 * 3, r
        lab.up(mode)
        assert lab.agent("getent", "hosts", "allowed.test").status == 0
        r = lab.python(OPEN, at, *PORTS, timeout=60)
        assert r.status == 0 and r.out == "", r
        if here == "world":
            told = {d["original"] for d in lab.records(kind="decision")
                    if d["verdict"] == "deny"}
            assert {at + ":" + p for p in PORTS} <= told, told
    finally:
        lab.run(lab.agent_space, "sysctl", "-qw",
                "net.ipv4.ip_unprivileged_port_start=1024")
        lab.stop(server)
        lab.down()


MPTCP = TCP.replace("socket.AF_INET)", "socket.AF_INET, 1, 262)")


def test_mptcp_is_captured_like_tcp(gate):
    r = gate.lab.python(MPTCP, "203.0.113.10", "80", EVIL, "")
    quiet_403(r)


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_b39_denied_names_are_never_asked_upstream(gate):
    """Policy before lookup, on UDP and TCP."""
    before = gate.lab.asked("evil.test")
    for via in ("udp", "tcp"):
        r = gate.lab.python(ASK, "203.0.113.53", "evil.test", "1", via)
        led_astray(r)
    assert gate.lab.asked("evil.test") == before


def test_b63_rules_stand_and_a_changed_rule_is_named(gate):
    """Read back, not trusted."""
    lab = gate.lab
    assert lab.verb("rules", "check", "-c", lab.conf).status == 0
    chain = "inp" if lab.mode == "gateway" else "flt"
    r = lab.run(lab.space, "nft", "insert", "rule", "inet", "penstock", chain,
                "tcp", "dport", "4444", "accept")
    assert r.status == 0, r
    r = lab.verb("rules", "check", "-c", lab.conf)
    assert r.status == 1 and "table inet penstock, chain %s, rule 1 " \
        "(handle " % chain in r.err and "found 'tcp dport 4444 accept', " \
        "which is not penstock's; expected there: %s/" % chain in r.err, r
    assert "penstock rules apply -c %s\n" % lab.conf in r.err, r
    assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
    assert lab.verb("rules", "check", "-c", lab.conf).status == 0


def test_w39_rules_without_privilege_say_so(gate):
    lab = gate.lab
    r = lab.run(lab.space, *lab.AS_AGENT, lab.binary, "rules", "check", "-c",
                lab.conf)
    assert r.status == 77 and "CAP_NET_ADMIN" in r.err, r


def test_without_penstock_it_stays_closed(gate):
    """The daemon is gone, the rules are not: refused at once, both ways."""
    lab = gate.lab
    lab.stop(lab.penstock)
    try:
        r = lab.agent("curl", "-sS", "-m", "5", "http://203.0.113.10/")
        assert not reached(r) and r.seconds < 2, r
        r = lab.python(UDP, "203.0.113.10", "9999", "x")
        assert "got" not in r.out, r
    finally:
        lab.serve()


def exempt(lab, *options):
    return lab.run("shared", "setpriv", "--reuid", "1337", "--clear-groups",
                   "--bounding-set", "-all", "--inh-caps", "-all",
                   "/usr/bin/python3", "-c", TCP, "203.0.113.10", "80", EVIL,
                   *options)


def test_an_exempt_process_can_renounce(gate):
    """SO_PRIORITY 6 gives the exemption up, so that a canary can prove the
    guard."""
    assert reached(exempt(gate.lab, "", "3"))
    r = exempt(gate.lab, "priority", "3")
    assert not reached(r), r


test_an_exempt_process_can_renounce.modes = ("shared",)

def test_a_setuid_file_needs_new_privileges(gate):
    """A file of the agent's own image that belongs to penstock's uid: what
    closes it is no_new_privs, and without it it is open."""
    lab = gate.lab
    file = os.path.join(lab.dir, "python-1337")
    shutil.copy(os.path.realpath(PYTHON), file)
    os.chown(file, 1337, 1337)
    os.chmod(file, 0o4755)
    ask = (file, "-c", TCP, FOUR, "80", EVIL, "")
    loose = [a for a in lab.AS_AGENT if a != "--no-new-privs"]
    assert reached(lab.run("shared", *loose, *ask))
    quiet_403(lab.agent(*ask))


test_a_setuid_file_needs_new_privileges.modes = ("shared",)


def test_no_socket_is_open_to_whoever_shares_the_namespace(gate):
    """An abstract Unix socket would be: penstock has none."""
    r = gate.lab.run(gate.lab.space, "cat", "/proc/net/unix")
    assert r.status == 0 and "@" not in r.out, r


SERVER = """
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", int(sys.argv[1])))
s.listen()
print("listening", flush=True)
while True:
    c, peer = s.accept()
    c.sendall(b"served\\n")
    c.close()
"""


@pytest.mark.parametrize("port,served", [("8080", True), ("8081", False)])
def test_n35_inbound_ports_are_served_and_no_others(lab, port, served):
    """Replies to declared inbound connections leave; others do not."""
    lab.unguarded("shared")
    server = lab.start("shared", *lab.AS_AGENT, "/usr/bin/python3", "-c",
                       SERVER, port)
    try:
        def ask():
            return lab.run("world", "curl", "-s", "-m", "1", "--http0.9",
                           "http://198.18.3.2:%s/" % port)
        lab.wait(lambda: "served" in ask().out, 5, "the agent's server")
        lab.up("shared", extra="inbound: [8080]\n")
        assert ("served" in ask().out) is served
        # the port opens nothing for what the agent itself begins
        r = lab.python(TCP, "203.0.113.10", "80", EVIL,
                       "source=%d" % (int(port) + 100))
        assert not reached(r), r
    finally:
        lab.stop(server)
        lab.down()


@pytest.mark.parametrize("mode", ["shared", "gateway"])
def test_b074_start_is_refused_without_rules(lab, mode):
    """Nothing degrades to "not enforced"."""
    lab.unguarded(mode)
    lab.config(mode)
    r = lab.run(lab.space, lab.binary, "serve", "-c", lab.conf, timeout=10)
    assert r.status not in (0, "timeout"), r
    assert "rules" in r.text, r


@pytest.mark.parametrize("mode", ["shared", "gateway"])
def test_remove_leaves_nothing(lab, mode):
    lab.unguarded(mode)
    lab.config(mode)
    lab.forward(False)
    assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
    assert "penstock" in lab.run(lab.space, "nft", "list", "ruleset").out
    for _ in range(2):
        assert lab.verb("rules", "remove").status == 0
    assert lab.run(lab.space, "nft", "list", "ruleset").out == ""
    assert "15001" not in lab.run(lab.space, "ip", "rule").out
    assert "15001" not in lab.run(lab.space, "ip", "-6", "rule").out


def test_a_forwarding_gateway_is_refused(lab):
    lab.unguarded("gateway")        # forwarding is on
    lab.config("gateway")
    r = lab.verb("rules", "apply", "-c", lab.conf)
    assert r.status == 1 and "ip_forward" in r.err, r
    assert lab.verb("rules", "remove").status == 0


GOLDEN = {
    "shared.nft": ["--mode", "shared", "--uid", "1337,1338", "--inbound",
                   "8080", "--admin-port", "9901"],
    "shared6.nft": ["--mode", "shared", "--uid", "1337", "--ipv6", "proxy"],
    "gateway.nft": ["--mode", "gateway", "--interface", "ag0"],
    "gateway6.nft": ["--mode", "gateway", "--interface", "ag0",
                     "--interface", "ag1", "--ipv6", "proxy"],
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_print_is_what_was_reviewed(lab, name):
    r = lab.run("world", lab.binary, "rules", "print", *GOLDEN[name])
    version = lab.run("world", lab.binary, "version").out.split()[1]
    with open(os.path.join(HERE, "golden", name)) as f:
        assert r.out.replace("penstock " + version, "penstock VERSION") == \
            f.read()



@pytest.mark.parametrize("mode", ["shared", "gateway"])
def test_ipv6_drop_is_the_agents_and_not_our_own(lab, mode):
    """A name that has IPv6 only is reached through the explicit listener,
    while the agent's own IPv6 is closed and its AAAA question empty."""
    reached_six = "reached six.test at 2001:db8:113::10"
    lab.unguarded(mode)
    r = lab.python(TCP, "2001:db8:113::10", "80", GET % "six.test", "")
    assert reached(r), r        # open without the guard
    lab.up(mode)
    try:
        r = lab.agent("curl", "-sS", "-m", "8", "-x", "http://%s:15080" %
                      lab.proxy_address, "http://six.test/")
        assert reached_six in r.out, r
        r = lab.python(TCP, "2001:db8:113::10", "80", GET % "six.test", "")
        assert not reached(r) and "error" in r.out, r
        r = lab.python(ASK, "203.0.113.53", "six.test", "28", "udp")
        assert "rcode 0 answers 0" in r.out, r
        if mode == "shared":
            out = lab.run("shared", "nft", "list", "chain", "inet",
                          "penstock", "post").out
            assert "post/ipv6" in out, out
            r = lab.python(TCP, "2001:db8:113::10", "80", EVIL, "device")
            assert not reached(r), r
    finally:
        lab.down()


@pytest.mark.parametrize("mode", ["shared", "gateway"])
def test_ipv6_is_proxied_when_asked(lab, mode):
    """--ipv6 proxy: captured and judged, not dropped."""
    lab.up(mode, ipv6="proxy")
    try:
        r = lab.agent("curl", "-sS", "-6", "-m", "8", "http://six.test/")
        assert "reached six.test at 2001:db8:113::10" in r.out, r
        r = lab.python(TCP, "2001:db8:113::10", "80", EVIL, "")
        assert not reached(r) and "403" in r.out, r
        r = lab.python(UDP, "2001:db8:113::10", "9999", "x")
        assert "got" not in r.out, r
    finally:
        lab.down()
