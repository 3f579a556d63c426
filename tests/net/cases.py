# SPDX-License-Identifier: Apache-2.0
"""The form of a paired test, and small programs that an agent would run."""
import re


class Case:
    """attempt(lab) -> Result; leaks(Result): it got out; closed(lab, Result)
    asserts what the same attempt gives with the guard.  The world's servers
    are asked too, unless they keep no log of such a thing."""

    def __init__(self, name, attempt, leaks, closed,
                 modes=("gateway", "shared"), logged=True):
        self.name, self.attempt, self.leaks = name, attempt, leaks
        self.closed, self.modes, self.logged = closed, modes, logged


# What the policy never opens, as a server would see it.
DENIED_HOSTS = {"evil.test", "denied.test", "wild.test"}
DENIED_ADDRESSES = {"203.0.113.66", "10.9.9.9", "169.254.169.254"}


def forbidden(entry):
    return entry.get("host") in DENIED_HOSTS or \
        entry.get("addr") in DENIED_ADDRESSES


def shut(lab, attempt):
    """An attempt of which no server may see anything forbidden."""
    r = lab.watched(attempt)
    assert not any(forbidden(e) for e in r.arrived), r
    return r


def key(entry):
    return tuple(sorted((k, v) for k, v in entry.items() if k != "peer"))


def check_pair(gate, case):
    leak = gate.leaks[case.name]
    assert case.leaks(leak), "it does not leak without the guard: %r" % leak
    assert leak.arrived or not case.logged, leak
    r = shut(gate.lab, case.attempt)
    assert r.status != "timeout", r
    if case.logged:
        lost = {key(e) for e in leak.arrived} - {key(e) for e in r.arrived}
        assert lost, "all of it arrived: %r" % r
    case.closed(gate.lab, r)


def reached(r):
    """A server's own words stand at the beginning of a line."""
    return re.search(r"^reached ", r.out, re.M) is not None


def curl(*args, **kw):
    return lambda lab: lab.agent("curl", "-sS", "-m", "8", *args, **kw)


def refused_with(*words, within=4):
    """Nothing came back, these words were printed, and soon."""
    def closed(lab, r):
        assert "reached" not in r.out, r
        assert any(w.lower() in r.text.lower() for w in words), r
        assert r.seconds < within, r
    return closed


def denied_http(reason, host):
    """The 403 that an agent can read."""
    def closed(lab, r):
        assert "reached" not in r.out, r
        assert "403" in r.text and reason in r.text and host in r.text, r
    return closed


UDP = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET,
                  socket.SOCK_DGRAM)
s.settimeout(2)
try:
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.send(sys.argv[3].encode())
    print("got", s.recv(100).decode())
except OSError as e:
    print("error", type(e).__name__, e)
"""

TCP = """
import socket, sys
host, port, send, options = sys.argv[1:5]
six = ":" in host
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
s.settimeout(float(sys.argv[5]) if len(sys.argv) > 5 else 3)
for o in options.split():
    if o == "device":
        s.setsockopt(socket.SOL_SOCKET, 25, b"eth0\\0")
    if o == "priority":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 6)
    if o.startswith("source="):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("", int(o[7:])))
try:
    s.connect((host, int(port)))
    s.sendall(send.encode().decode("unicode_escape").encode("latin-1"))
    data = b""
    while True:
        d = s.recv(4096)
        if not d:
            break
        data += d
        if b"ready" in data:
            break
    print("got", data.decode("latin-1"))
except OSError as e:
    print("error", type(e).__name__, e)
"""

GET = "GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n"

# Ask one question; print the code and the addresses.
ASK = """
import socket, struct, sys
server, name, qtype, via = sys.argv[1:5]
q = struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, 0)
for label in name.split("."):
    q += bytes([len(label)]) + label.encode("latin-1")
q += b"\\0" + struct.pack(">HH", int(qtype), 1)
try:
    if via == "tcp":
        s = socket.create_connection((server, 53), 4)
        s.sendall(struct.pack(">H", len(q)) + q)
        n = struct.unpack(">H", s.recv(2))[0]
        a = b""
        while len(a) < n:
            a += s.recv(n)
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(4)
        s.connect((server, 53))
        s.send(q)
        a = s.recv(2000)
    print("rcode", a[3] & 15, "answers", struct.unpack(">H", a[6:8])[0])
    for i in range(len(q), len(a) - 13):
        if a[i:i + 4] == b"\\0\\1\\0\\1" and a[i + 8:i + 10] == b"\\0\\4":
            print("address", socket.inet_ntoa(a[i + 10:i + 14]))
except OSError as e:
    print("error", type(e).__name__, e)
"""


# Where names lead that the policy denies, unless another address is set.
SINKHOLE = "192.0.2.1"


def led_astray(r):
    """The answer to a question for a denied name."""
    assert r.out == "rcode 0 answers 1\naddress %s\n" % SINKHOLE, r


def program(code, *args):
    return lambda lab: lab.python(code, *args)
