# SPDX-License-Identifier: Apache-2.0
"""What a cell has looked up is its own; and a flow that a name let pass goes
on at a reload, whatever has become of the pins meanwhile."""
import os
import signal
import subprocess

import pytest

from lab import NAMES, POLICY, PYTHON
from test_life import hup, pids
from test_operators import pins

ECHO = "203.0.113.15"           # of echo.test, and of outer.test
FIRST, SECOND = "198.18.0.2", "198.18.0.77"
APART = ["    from: {cidr: %s/32}" % FIRST,
         "  - id: agent-2", "    policy: [second.yaml]",
         "    from: {cidr: %s/32}" % SECOND]
TOGETHER = ["    from: {cidr: 198.18.0.0/24}"]

# From this address: look a name up, or connect to a server that speaks first.
FROM = """
import socket, struct, sys
source, what, to = sys.argv[1:4]
kind = socket.SOCK_DGRAM if what == "ask" else socket.SOCK_STREAM
s = socket.socket(socket.AF_INET, kind)
s.bind((source, 0))
s.settimeout(4)
try:
    s.connect((to if what == "dial" else "203.0.113.53",
               7000 if what == "dial" else 53))
    if what == "ask":
        s.send(struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, 0) + b"".join(
            bytes([len(l)]) + l.encode() for l in to.split(".")) +
            struct.pack(">BHH", 0, 1, 1))
    print("got", s.recv(2000))
except OSError as e:
    print("failed", e)
"""


def ask(lab, source, name):
    """True when it has the address."""
    r = lab.python(FROM, source, "ask", name)
    return repr(bytes([203, 0, 113, 15]))[2:-1] in r.out


def dial(lab, source, to=ECHO):
    return "ready" in lab.python(FROM, source, "dial", to).out


@pytest.fixture
def cells(lab):
    """Two addresses, which are two cells or one."""
    lab.unguarded("gateway")
    lab.ip("agent", "addr", "add", SECOND + "/24", "dev", "eth0")

    def up(of):
        lab.unguarded("gateway")
        lab.forward(False)
        lab.config("gateway", cells=of)
        with open(os.path.join(os.path.dirname(lab.policy), "second.yaml"),
                  "w") as f:
            f.write(POLICY)
        apart = ["--accept-risk", "shared-segment"] if of is APART else []
        r = lab.verb("rules", "apply", "-c", lab.conf)
        assert r.status == 0, r
        lab.serve(*apart)
        return lab

    yield up
    lab.down()
    lab.ip("agent", "addr", "del", SECOND + "/24", "dev", "eth0")


def test_a_lookup_opens_an_address_for_its_own_cell_alone(cells):
    lab = cells(TOGETHER)
    assert ask(lab, FIRST, "echo.test") and dial(lab, SECOND)
    lab = cells(APART)
    assert ask(lab, FIRST, "echo.test") and dial(lab, FIRST)
    assert not dial(lab, SECOND)
    d = lab.record(kind="decision", cell="agent-2", verdict="deny")
    assert d["reason"] in ("not_pinned", "nameless"), d
    assert ask(lab, SECOND, "echo.test") and dial(lab, SECOND)


def test_a_lookup_closes_an_address_for_its_own_cell_alone(cells):
    """outer.test may be reached on another port only: who has looked it up
    may mean it, where it has the address too."""
    lab = cells(TOGETHER)
    assert ask(lab, FIRST, "echo.test") and dial(lab, FIRST)
    assert ask(lab, SECOND, "outer.test") and not dial(lab, FIRST)
    lab = cells(APART)
    for source in (FIRST, SECOND):
        assert ask(lab, source, "echo.test") and dial(lab, source)
    assert ask(lab, SECOND, "outer.test") and not dial(lab, SECOND)
    assert dial(lab, FIRST)


# At each signal a line, and what comes back.
HOLD = """
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
s = socket.create_connection((sys.argv[1], 7000), 4)
s.settimeout(4)
print(s.recv(100), flush=True)
while True:
    signal.sigwait([signal.SIGUSR1])
    try:
        s.sendall(b"again\\n")
        print(s.recv(100), flush=True)
    except OSError as e:
        print("failed", e, flush=True)
"""


@pytest.fixture(params=["gateway", "shared"])
def held(request, lab):
    """A flow without a name that echo.test let pass."""
    lab.up(request.param)
    assert lab.agent("getent", "hosts", "echo.test").status == 0
    p = lab.start(lab.agent_space, *lab.AS_AGENT, PYTHON, "-c", HOLD, ECHO,
                  stdout=subprocess.PIPE)

    def again():
        p.send_signal(signal.SIGUSR1)
        return "again" in str(p.stdout.readline())

    assert "ready" in str(p.stdout.readline())
    yield lab, again
    lab.stop(p)
    lab.down()


def reload(lab, policy):
    n = lab.log().count("policy in use")
    with open(lab.policy, "w") as f:
        f.write(policy)
    hup(lab)
    lab.wait(lambda: lab.log().count("policy in use") > n, 5, "a reload")


def test_a_name_that_comes_to_have_the_address_cuts_nothing(held):
    lab, again = held
    assert again()
    assert lab.agent("getent", "hosts", "outer.test").status == 0
    reload(lab, POLICY + "# another digest\n")
    assert again()
    # it would not begin now
    assert "ready" not in lab.python(FROM, "0.0.0.0", "dial", ECHO).out


WITHOUT = POLICY.replace("hostname: echo.test", "hostname: pkg.test")
DENIED = POLICY.replace("  rule:\n", "  rule:\n    - {verdict: deny, "
                        "hostname: echo.test}\n").replace(
    "    - {verdict: allow, hostname: echo.test, ports: [7000], "
    "protocol: tcp}\n", "")
NOT_ITS = pytest.mark.parametrize("policy", [WITHOUT, DENIED],
                                  ids=["without", "denied"])


@NOT_ITS
def test_a_policy_that_does_not_allow_its_name_cuts_it(held, policy):
    lab, again = held
    reload(lab, policy)
    assert not again()
    lab.record(kind="end", reason="policy_changed")


OTHER, THIRD = "203.0.113.10", "203.0.113.99"   # the other echoes too


def rotate(lab, to):
    lab.names({**NAMES, "echo.test": {"A": [to], "ttl": 1}})


def pinned(lab, name, address):
    return address in [p["address"] for p in pins(lab, "--name", name)]


def test_a_tcp_rules_name_is_pinned_where_it_moves_with_nobody_asking(lab):
    """A pool of connections keeps addresses, and asks no more."""
    try:
        rotate(lab, ECHO)
        lab.up("gateway")
        assert lab.agent("getent", "hosts", "echo.test").status == 0
        p = lab.start(lab.agent_space, *lab.AS_AGENT, PYTHON, "-c", HOLD,
                      ECHO, stdout=subprocess.PIPE)
        assert "ready" in str(p.stdout.readline())
        assert not dial(lab, FIRST, OTHER)          # nobody's yet
        rotate(lab, OTHER)
        lab.wait(lambda: pinned(lab, "echo.test", OTHER), 15, "the move")
        assert dial(lab, FIRST, OTHER)
        # what was told to a client stays, and so does its connection
        assert dial(lab, FIRST, ECHO)
        p.send_signal(signal.SIGUSR1)
        assert "again" in str(p.stdout.readline())
        lab.stop(p)
        # another resolver goes on where the one before was killed
        rotate(lab, THIRD)
        for pid in pids(lab, "resolver"):
            os.kill(pid, signal.SIGKILL)
        lab.wait(lambda: pinned(lab, "echo.test", THIRD), 20, "the next")
    finally:
        lab.down()
        lab.names(NAMES)


@NOT_ITS
def test_a_policy_that_does_not_allow_its_name_opens_nothing(cells, policy):
    """The pin is there still, for minutes; its name is judged by the policy of
    now, with the address and without."""
    lab = cells(TOGETHER)
    assert ask(lab, FIRST, "echo.test") and dial(lab, FIRST)
    reload(lab, policy)
    assert "echo.test" in lab.verb("pins", "-c", lab.conf).text
    assert not dial(lab, FIRST)
    d = lab.record(kind="decision", verdict="deny")
    assert d["reason"] in ("not_pinned", "nameless", "rule_deny"), d
    assert not ask(lab, FIRST, "echo.test")
