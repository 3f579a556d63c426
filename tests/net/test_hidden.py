# SPDX-License-Identifier: Apache-2.0
"""A name that comes late or hidden: in the second ClientHello after a real
HelloRetryRequest, and inside an encrypted one (ECH)."""
import subprocess

import pytest

from cases import Case, check_pair, reached
from lab import POLICY, PYTHON, script

RETRY = "203.0.113.14"        # takes shares of P-384 alone
HIDING = "203.0.113.15"       # speaks ECH
OURS = script("tls13.py")


def client(first, second, *options):
    return lambda lab: lab.agent("/usr/bin/python3", OURS, RETRY, first,
                                 second, *options)


def cut(lab, r):
    """The retry came, and the hello that follows it ended the connection."""
    assert "retry asked" in r.out and "error" in r.out, r
    assert not reached(r) and not r.arrived, r
    d = lab.record(kind="end", reason="second_hello")
    assert d["connection"], d


CASES = [
    Case("second-hello-of-a-denied-name", client("retry.test", "evil.test"),
         lambda r: "reached evil.test" in r.out, cut),
    Case("second-hello-of-another-allowed-name",
         client("retry.test", "other.test"),
         lambda r: "reached other.test" in r.out, cut),
    Case("second-hello-of-a-longer-name",
         client("retry.test", "a.wild.test"),
         lambda r: "reached a.wild.test" in r.out, cut),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_a_retry_with_the_same_name_passes(gate):
    r = client("retry.test", "retry.test")(gate.lab)
    assert "retry asked" in r.out and "reached retry.test" in r.out, r
    r = client("retry.test", "RETRY.test")(gate.lab)
    assert "reached RETRY.test" in r.out, r


def test_a_retry_of_a_real_client_passes(gate):
    lab = gate.lab
    r = lab.agent("openssl", "s_client", "-connect", RETRY + ":443",
                  "-CAfile", lab.ca, "-verify_return_error", "-groups",
                  "X25519:P-384", "-msg", "-ign_eof", "-servername",
                  "retry.test",
                  stdin="GET / HTTP/1.1\r\nHost: retry.test\r\n"
                  "Connection: close\r\n\r\n")
    hellos = [line for line in r.out.splitlines()
              if line.startswith(">>>") and "ClientHello" in line]
    assert len(hellos) == 2, r
    assert "reached retry.test" in r.out, r


def under(lab, mode, ech):
    lab.up(mode, policy=POLICY.replace("  lab:", "  ech: %s\n  lab:" % ech))


def refused_ech(lab, r, name):
    assert not reached(r) and not r.arrived, r
    assert "alert" in r.out or "error" in r.out, r
    d = lab.record(kind="decision", name=name, reason="ech")
    assert d["verdict"] == "deny" and d["name_from"] == "sni", d


@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_ech_as_browsers_send_it_to_everybody(lab, mode):
    hides = client("retry.test", "retry.test", "ech")
    lab.unguarded(mode)
    r = lab.watched(hides, True)
    assert reached(r) and r.arrived, r
    under(lab, mode, "deny")
    try:
        refused_ech(lab, lab.watched(hides), "retry.test")
        # a client that hides nothing is served as ever
        assert reached(client("retry.test", "retry.test")(lab))
        under(lab, mode, "allow-outer")
        r = hides(lab)
        assert "reached retry.test" in r.out, r
        r = lab.watched(client("evil.test", "evil.test", "ech"))
        assert not reached(r) and not r.arrived, r
        lab.record(name="evil.test", reason="no_rule")
    finally:
        lab.down()


@pytest.fixture(scope="module")
def hiding(lab):
    """A real ECH server, and the client that hides a name in its hello."""
    ech, config = script("ech.py"), lab.dir + "/ech.config"
    server = lab.start("world", PYTHON, ech, "serve", HIDING, "outer.test",
                       config, lab.dir, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    yield lambda lab: lab.agent(PYTHON, ech, "ask", HIDING, "evil.test",
                                config)
    lab.stop(server)


@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_ech_that_truly_hides_a_name(lab, hiding, mode):
    inner = "reached evil.test ech true"
    lab.unguarded(mode)
    r = hiding(lab)
    assert inner in r.out, r
    under(lab, mode, "deny")
    try:
        refused_ech(lab, lab.watched(hiding), "outer.test")
        # who allows the outer name allows what is hidden behind it
        under(lab, mode, "allow-outer")
        r = hiding(lab)
        assert inner in r.out, r
        d = lab.record(kind="decision", verdict="allow", name="outer.test")
        assert d["name_from"] == "sni", d
        # and who does not allow it allows nothing
        lab.up(mode, policy="".join(
            line + "\n" for line in POLICY.splitlines()
            if "outer.test" not in line))
        r = hiding(lab)
        assert not reached(r), r
        lab.record(name="outer.test", reason="no_rule")
    finally:
        lab.down()
