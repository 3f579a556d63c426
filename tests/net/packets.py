# SPDX-License-Identifier: Apache-2.0
"""Packets made by hand, ears on the wire, and servers next door.

The wire is where only what has left the guard is seen: the world's end of the
uplink.  The neighbour is the first machine on the agent's own link: the world
in shared mode, the gateway itself in gateway mode."""
import re
import select

from lab import PYTHON

OUT = b"pstk-out"

TAP = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
mark = bytes.fromhex(sys.argv[2])
print("ready", flush=True)
while True:
    data, at = s.recvfrom(65536)
    if at[2] != socket.PACKET_OUTGOING and mark in data:
        print("reached the wire", flush=True)
"""

# TCP serves one line, UDP echoes and tells what arrived, also for groups.
NEIGHBOUR = """
import socket, struct, sys, threading
index = socket.if_nametoindex(sys.argv[1])
t = socket.create_server(("::", 7777), family=socket.AF_INET6,
                         dualstack_ipv6=True)
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
u.setsockopt(41, 26, 0)
u.bind(("::", 7777))
u.setsockopt(41, 20, socket.inet_pton(socket.AF_INET6, "ff05::7:7") +
             struct.pack("I", index))
# a group of IPv4 needs a socket of IPv4; it takes unicast too
g = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
g.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
g.bind(("0.0.0.0", 7778))
g.setsockopt(0, 35, struct.pack("4s4si", socket.inet_aton("239.255.7.7"),
                                bytes(4), index))
def tell(s):
    while True:
        data, peer = s.recvfrom(9000)
        print("reached the neighbour", flush=True)
        s.sendto(data, peer)
for s in (u, g):
    threading.Thread(target=tell, args=(s,), daemon=True).start()
print("ready", flush=True)
while True:
    c, _ = t.accept()
    print("reached the neighbour", flush=True)
    c.sendall(b"served ready")
    c.close()
"""

RAW = """
import socket, sys
to, proto, options, data = sys.argv[1:5]
six = ":" in to
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET,
                  socket.SOCK_RAW, int(proto))
for o in options.split():
    if o == "device":
        s.setsockopt(socket.SOL_SOCKET, 25, b"eth0\\0")
    if o == "hops":
        s.setsockopt(41, 16, 255)
    if o.startswith("mark="):
        s.setsockopt(socket.SOL_SOCKET, 36, int(o[5:]))
try:
    s.sendto(bytes.fromhex(data), (to, 0))
    print("sent")
except OSError as e:
    print("error", type(e).__name__, e)
"""

# One socket with the options that might lead it round the rules.
SOCKET = """
import socket, struct, sys
kind, to, port, options, data = sys.argv[1:6]
data = data.encode().decode("unicode_escape").encode("latin-1")
six, anc, udp = ":" in to, [], kind != "tcp"
# whole, with the scope of a link-local address
at = socket.getaddrinfo(to, int(port))[0][4]
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET,
                  socket.SOCK_DGRAM if udp else socket.SOCK_STREAM,
                  136 if kind == "lite" else 0)
s.settimeout(2)
index = socket.if_nametoindex("eth0")
try:
    for o in options.split():
        if o == "device":
            s.setsockopt(socket.SOL_SOCKET, 25, b"eth0\\0")
        if o == "unicast":
            s.setsockopt(0, 50, struct.pack("!I", index))
        if o == "route":        # record route
            s.setsockopt(0, 4, bytes([7, 7, 4, 0, 0, 0, 0, 0]))
        if o == "info":
            anc = [(0, 8, struct.pack("i4s4s", index, bytes(4), bytes(4)))]
        if o == "broadcast":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if o.startswith("mark="):
            s.setsockopt(socket.SOL_SOCKET, 36, int(o[5:], 0))
        if o.startswith("source="):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("", int(o[7:])))
    if udp:
        s.sendmsg([data], anc, 0, at)
        print("sent")
        print("got", s.recv(100).decode())
    else:
        s.connect(at)
        s.sendall(data)
        answer = b""
        while True:
            d = s.recv(4096)
            if not d:
                break
            answer += d
        print("got", answer.decode("latin-1"))
except OSError as e:
    print("error", type(e).__name__, e)
"""

# Join a group: the kernel itself tells the link about it.
JOIN = """
import socket, struct, time
index = socket.if_nametoindex("eth0")
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
a.setsockopt(0, 35, struct.pack("4s4si", socket.inet_aton("239.255.7.9"),
                                bytes(4), index))
b = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
b.setsockopt(41, 20, socket.inet_pton(socket.AF_INET6, "ff05::7:9") +
             struct.pack("I", index))
time.sleep(1.2)
print("joined")
"""

# Ethernet frames by hand, below everything.
FRAME = """
import socket, struct, sys
to, kind, bypass = sys.argv[1:4]
data = b"pstk-out"
udp = struct.pack(">HHHH", 5555, 9999, 8 + len(data), 0) + data
if kind == "4":
    h = struct.pack(">BBHHHBBH4s4s", 69, 0, 20 + len(udp), 1, 0, 64, 17, 0,
                    socket.inet_aton("198.18.0.2"),
                    socket.inet_aton("203.0.113.10"))
    c = sum(struct.unpack(">10H", h))
    c = ~((c >> 16) + (c & 0xffff)) & 0xffff
    h = h[:10] + struct.pack(">H", c) + h[12:]
else:
    h = struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + \\
        socket.inet_pton(socket.AF_INET6, "fd42:18::2") + \\
        socket.inet_pton(socket.AF_INET6, "2001:db8:113::10")
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
if bypass == "bypass":
    s.setsockopt(263, 20, 1)
s.send(bytes.fromhex(to.replace(":", "")) + bytes(6) +
       (b"\\x08\\x00" if kind == "4" else b"\\x86\\xdd") + h + udp)
print("sent")
"""

SETUID = """
import os
for name in ("setuid", "seteuid", "setreuid", "setresuid"):
    try:
        getattr(os, name)(*[1337] * {"setreuid": 2, "setresuid": 3}.get(
            name, 1))
        print("became 1337")
    except OSError as e:
        print(name, type(e).__name__)
"""

BIND = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET,
                  socket.SOCK_DGRAM if sys.argv[1] == "udp" else
                  socket.SOCK_STREAM)
for o in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    s.setsockopt(socket.SOL_SOCKET, o, 1)
try:
    s.bind((sys.argv[2], int(sys.argv[3])))
    if sys.argv[1] == "tcp":
        s.listen()
    print("bound")
except OSError as e:
    print("error", type(e).__name__, e)
"""


def wire(lab):
    return "world", "sh0" if lab.mode == "shared" else "gw0"


def link(lab):
    return ("world", "sh0") if lab.mode == "shared" else ("gateway", "ag0")


def neighbour(lab, which):
    """The neighbour's address, as the agent would write it."""
    net = "3" if lab.mode == "shared" else "0"
    if which == "4":
        return "198.18.%s.1" % net
    if which == "6":
        return "fd42:3::1" if lab.mode == "shared" else "fd42:18::1"
    space, dev = link(lab)
    out = lab.ip(space, "-6", "-o", "addr", "show", "dev", dev, "scope",
                 "link").stdout
    return re.search(r"inet6 (fe80\S+)/", out).group(1) + "%eth0"


def heard(lab, where, program, send):
    """The attempt, and what a program that listens elsewhere heard of it."""
    ear = lab.start(where, PYTHON, "-c", *program, stdout=-1)
    try:
        assert ear.stdout.readline() == b"ready\n"
        r = send(lab)
        # what leaves is waited for, what does not is given a moment
        free = lab.penstock is None
        select.select([ear.stdout], [], [], 3 if free else 0.3)
        ear.terminate()
        ear.wait(5)
        r.out += "\n" + ear.stdout.read().decode()
        return r
    finally:
        lab.stop(ear)


def tapped(send, mark=OUT):
    """The attempt, with an ear on the wire for these bytes."""
    return lambda lab: heard(lab, wire(lab)[0],
                             (TAP, wire(lab)[1], mark.hex()), send)


def beside(send):
    """The attempt, with servers on the neighbour."""
    return lambda lab: heard(lab, link(lab)[0], (NEIGHBOUR, link(lab)[1]),
                             send)


def root(code, *args):
    """As root in the agent's namespace: with each capability."""
    return lambda lab: lab.run(lab.agent_space, PYTHON, "-c", code, *args)


def raw(to, proto, data, options=""):
    return tapped(root(RAW, to, str(proto), options, data.hex()))
