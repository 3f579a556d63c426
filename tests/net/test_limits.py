# SPDX-License-Identifier: Apache-2.0
"""Limits: what is above one is refused and told with its reason, others are
served meanwhile, and all is well when it is over.  Each is first seen to be
served under limits that it does not reach."""
import os
import signal
import subprocess

import pytest

from cases import TCP, reached
from lab import PYTHON
from test_life import hup, pids

ADDRESS = "203.0.113.10"

# N kept connections, each with an answer, or where nothing is asked: "open N";
# at each signal asked once more: "served N", and so on until killed.
HOLD = """
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
n, source = int(sys.argv[1]), sys.argv[2]
held = [socket.create_connection(("203.0.113.10", 80), 5, (source, 0))
        for _ in range(n)]
for s in held:
    s.settimeout(5)
def ask(s):
    try:
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n")
        data = b""
        while b"reached allowed.test" not in data:
            d = s.recv(4096)
            if not d or b"HTTP/1.1 503" in d:
                return False
            data += d
        return True
    except OSError:
        return False
print("open", sum([sys.argv[3] == "silent" or ask(s) for s in held]),
      flush=True)
while True:
    signal.sigwait([signal.SIGUSR1])
    print("served", sum([ask(s) for s in held]), flush=True)
"""


class Held:
    """Connections that a client keeps."""

    def __init__(self, lab, n, source, how="asking"):
        self.lab = lab
        self.p = lab.start(lab.agent_space, *lab.AS_AGENT, PYTHON, "-c", HOLD,
                           str(n), source, how, stdout=subprocess.PIPE)

    def __enter__(self):
        self.open = int(self.p.stdout.readline().split()[1])
        return self

    def served(self):
        self.p.send_signal(signal.SIGUSR1)
        return int(self.p.stdout.readline().split()[1])

    def __exit__(self, *exc):
        self.lab.stop(self.p)


@pytest.fixture(params=["gateway", "shared"])
def lab2(request, lab):
    """A client with two addresses."""
    lab.unguarded(request.param)
    net = "198.18.3" if request.param == "shared" else "198.18.0"
    lab.ip(lab.agent_space, "addr", "add", net + ".77/24", "dev", "eth0")
    lab.first, lab.second = net + ".2", net + ".77"
    yield lab
    lab.down()
    lab.ip(lab.agent_space, "addr", "del", net + ".77/24", "dev", "eth0")


def get(lab, source, *more):
    return lab.agent("curl", "-sS", "-i", "-m", "6", "--interface", source,
                     *more, "http://allowed.test/")


def denied(lab, reason):
    """The metric of a reason."""
    return [int(line.split()[-1]) for line in
            lab.get("/metrics")[1].splitlines() if line.startswith(
                'penstock_denied_total{reason="%s"}' % reason)][0]


def told(lab, reason, client):
    """The count and the record of a refusal."""
    assert denied(lab, reason) >= 1
    d = lab.record(kind="decision", reason=reason, seconds=8)
    assert d["verdict"] == "deny" and "would" not in d, d
    assert d["client"].startswith(client + ":"), d
    return d


def refused(lab, r, reason, client, *words):
    """Nothing of it went on, and what comes back says why."""
    assert not reached(r) and not r.arrived, r
    assert r.status != "timeout" and r.seconds < 4, r
    assert all(w in r.out for w in words), r
    return told(lab, reason, client)


def turned_away(lab, source, reason):
    """A connection without a place: no byte of it is read, so that only who
    asks a proxy has words.  Others are reset."""
    r = lab.watched(by(source))
    # reset while it connects, sends or reads
    assert r.status in (7, 55, 56), r
    assert refused(lab, r, reason, source)["original"] == ADDRESS + ":80"
    r = lab.watched(by_proxy(source))
    refused(lab, r, reason, source, " 503 ", reason)


def by_proxy(source):
    return lambda lab: get(lab, source, "-x",
                           "http://%s:15080" % lab.proxy_address)


def by(source):
    return lambda lab: get(lab, source)


def test_connections_of_one_client(lab2):
    lab = lab2
    lab.up(lab.mode)
    with Held(lab, 4, lab.first) as held:
        assert held.open == 4 and reached(get(lab, lab.first))
    lab.up(lab.mode, extra="limits: {per_client: 4}\n")
    with Held(lab, 4, lab.first) as held:
        assert held.open == 4
        for _ in range(3):
            turned_away(lab, lab.first, "limit_client")
        assert reached(get(lab, lab.second))
        assert held.served() == 4
    lab.wait(lambda: reached(get(lab, lab.first)), 5, "a place")


def test_connections_in_total(lab2):
    lab = lab2
    lab.up(lab.mode)
    with Held(lab, 4, lab.first) as held:
        assert held.open == 4 and reached(get(lab, lab.second))
    lab.up(lab.mode, extra="limits: {connections: 4}\n")
    with Held(lab, 4, lab.first) as held:
        assert held.open == 4
        for source in (lab.first, lab.second):
            turned_away(lab, source, "limit_total")
        assert held.served() == 4
    lab.wait(lambda: reached(get(lab, lab.second)), 5, "a place")
    assert reached(get(lab, lab.first))


TWO_CELLS = ["    from: {cidr: 198.18.0.0/26}", "  - id: agent-2",
             "    policy: [policy.yaml]", "    from: {cidr: 198.18.0.77/32}"]


def up_two(lab, limits):
    lab.unguarded("gateway")
    lab.forward(False)
    lab.config("gateway", extra="limits: {%s}\n" % limits, cells=TWO_CELLS)
    r = lab.verb("rules", "apply", "-c", lab.conf)
    assert r.status == 0, r
    lab.serve("--accept-risk", "shared-segment")


@pytest.fixture
def three(lab):
    """A client with two addresses in one cell and a third in another."""
    lab.unguarded("gateway")
    for a in ("198.18.0.3/24", "198.18.0.77/24"):
        lab.ip(lab.agent_space, "addr", "add", a, "dev", "eth0")
    yield ["198.18.0.2", "198.18.0.3", "198.18.0.77"]
    lab.down()
    for a in ("198.18.0.3/24", "198.18.0.77/24"):
        lab.ip(lab.agent_space, "addr", "del", a, "dev", "eth0")


def test_connections_of_one_cell(lab, three):
    first, second, other = three
    # all places, from two addresses: nothing is left for the other cell
    up_two(lab, "connections: 8, per_cell: 8")
    with Held(lab, 4, first) as one, Held(lab, 4, second) as two:
        assert one.open == two.open == 4
        turned_away(lab, other, "limit_total")
        d = lab.record(kind="decision", reason="limit_total")
        assert d["cell"] == "agent-2", d
    # by default each has its share of them
    up_two(lab, "connections: 8")
    with Held(lab, 2, first) as one, Held(lab, 1, second) as two:
        assert one.open == 2 and two.open == 1
        for source in (first, second):
            turned_away(lab, source, "limit_cell")
        d = lab.record(kind="decision", reason="limit_cell")
        assert d["cell"] == "agent-1", d
        with Held(lab, 3, other) as theirs:
            assert theirs.open == 3
        assert one.served() == 2 and two.served() == 1
    lab.wait(lambda: reached(get(lab, second)), 5, "a place")
    up_two(lab, "connections: 8, per_cell: 1")
    with Held(lab, 1, first) as one:
        assert one.open == 1
        turned_away(lab, second, "limit_cell")
        assert reached(get(lab, other))


def test_a_reload_takes_limits_and_tells_what_waits(lab, three):
    first, second, _ = three
    up_two(lab, "connections: 8, per_cell: 1")
    with Held(lab, 1, first) as one:
        assert one.open == 1
        turned_away(lab, second, "limit_cell")
        with open(lab.conf) as f:
            text = f.read()
        with open(lab.conf, "w") as f:
            f.write(text.replace("connections: 8, per_cell: 1",
                                 "connections: 9, per_cell: 3"))
        hup(lab)
        lab.wait(lambda: reached(get(lab, second)), 5, "a place")
        assert one.served() == 1
    assert "NOT IN USE before a new start, as changed: limits.connections;" \
        in lab.log()


def test_places_of_a_dead_engine_are_its_cells_again(lab, three):
    first, second, other = three
    up_two(lab, "connections: 8, per_cell: 3")
    with Held(lab, 3, first) as held:
        assert held.open == 3
        turned_away(lab, second, "limit_cell")
        assert reached(get(lab, other))
        for pid in pids(lab, "engine"):
            os.kill(pid, signal.SIGKILL)
        lab.wait(lambda: reached(get(lab, second)), 5, "a place")
        assert held.served() == 0
    with Held(lab, 3, second) as held:
        assert held.open == 3
        turned_away(lab, first, "limit_cell")


def leave(lab, pid, spare):
    """So many more descriptors for a process than it has now."""
    used = {int(fd) for fd in os.listdir("/proc/%d/fd" % pid)}
    n = 0
    while spare > 0 or n in used:
        spare -= n not in used
        n += 1
    with open("/proc/%d/status" % pid) as f:
        own = dict(line.split(":", 1) for line in f)
    r = lab.run("world", "setpriv", "--reuid", own["Uid"].split()[0],
                "--regid", own["Gid"].split()[0], "--clear-groups",
                "prlimit", "--pid", str(pid), "--nofile=%d:" % n)
    assert r.status == 0, r


def test_descriptors(lab2):
    lab = lab2
    lab.up(lab.mode, extra="limits: {hello_timeout: 30s}\n")
    engine = pids(lab, "engine")[0]
    with Held(lab, 3, lab.first) as held:
        assert held.open == 3
        with Held(lab, 12, lab.second, "silent"):
            assert reached(get(lab, lab.second))
    with Held(lab, 3, lab.first) as held:
        assert held.open == 3
        leave(lab, engine, 6)
        with Held(lab, 12, lab.second, "silent"):
            for _ in range(3):
                r = lab.watched(by(lab.second))
                assert not reached(r) and not r.arrived, r
                assert r.status != "timeout" and r.seconds < 4, r
            assert held.served() == 3       # nobody else loses by it
            assert denied(lab, "limit_descriptors") >= 3
            assert lab.get("/livez")[0] == 200
        # with that limit still there
        lab.wait(lambda: reached(get(lab, lab.second)), 5, "a descriptor")
        assert held.served() == 3
    told(lab, "limit_descriptors", lab.second)
    assert pids(lab, "engine") == [engine]
    assert not lab.records(kind="role")


# ---- sizes ----

def long_head(size):
    return lambda lab: get(lab, lab.first, "-H", "X-Long: " + "a" * size)


def test_the_size_of_a_head(lab2):
    lab = lab2
    r = lab.watched(long_head(3000), True)
    assert reached_in(r) and r.arrived, r
    lab.up(lab.mode)
    assert reached_in(long_head(3000)(lab))
    lab.up(lab.mode, extra="limits: {head_bytes: 2048}\n")
    d = refused(lab, lab.watched(long_head(3000)), "head_too_large",
                lab.first, " 431 ", "head_too_large")
    assert lab.record(kind="end", connection=d["connection"])
    assert reached_in(long_head(1000)(lab))
    # also of a request that is not the first
    two = "GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n" \
        "GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nX: %s\\r\\n" \
        "Connection: close\\r\\n\\r\\n"
    r = lab.python(TCP, ADDRESS, "80", two % ("a" * 100), "")
    assert r.out.count("reached") == 2, r
    r = lab.python(TCP, ADDRESS, "80", two % ("a" * 3000), "")
    assert r.out.count("reached") == 1 and "head_too_large" in r.out, r


def reached_in(r):
    return "reached allowed.test" in r.out


# A ClientHello with an unknown extension of so many bytes, in records.
HELLO = """
import socket, ssl, struct, sys
context = ssl._create_unverified_context()
inb, out = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(inb, out, server_hostname="allowed.test")
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    pass
body = bytearray(out.read()[9:])
n = int(sys.argv[1])
at = 35 + body[34]
at += 2 + int.from_bytes(body[at:at + 2], "big")
at += 1 + body[at]
body += struct.pack(">HH", 0x7a7b, n) + bytes(n)
body[at:at + 2] = struct.pack(">H", len(body) - at - 2)
message = b"\\1" + len(body).to_bytes(3, "big") + body
s = socket.create_connection(("203.0.113.10", 443), 5)
s.settimeout(5)
try:
    for i in range(0, len(message), 16000):
        part = message[i:i + 16000]
        s.sendall(b"\\x16\\3\\1" + struct.pack(">H", len(part)) + part)
    data = s.recv(4096)
    if data[:1] == b"\\x15":
        print("alert", data[6])
    elif data[:1] == b"\\x16" and data[5] == 2:
        print("server hello")
    else:
        print("answer", data[:20])
except OSError as e:
    print("error", type(e).__name__)
"""


def hello(size):
    return lambda lab: lab.python(HELLO, str(size))


def test_the_size_of_a_hello(lab2):
    lab = lab2
    assert "server hello" in hello(20000)(lab).out
    lab.up(lab.mode)
    r = hello(20000)(lab)
    assert "alert" in r.out or "error" in r.out, r
    d = lab.record(kind="decision", reason="hello_too_large")
    assert d["verdict"] == "deny", d
    assert lab.record(kind="end", connection=d["connection"])
    assert denied(lab, "hello_too_large") == 1
    r = hello(12000)(lab)           # as large as keys after quantum are, twice
    assert "server hello" in r.out, r
    assert reached(lab.agent("curl", "-sS", "https://allowed.test/"))
