# SPDX-License-Identifier: Apache-2.0
"""Which name leads to which address, and which names lead nowhere."""
import time

from cases import (ASK, GET, TCP, Case, check_pair, curl, program, reached)
from lab import NAMES

ADDRESS = "203.0.113.10"
NOBODY = "203.0.113.66"       # of no name


def never(lab, r):
    assert not reached(r), r


def pinned(lab, r):
    assert "at 203.0.113.10" in r.out and "203.0.113.11" not in r.out, r


def at_other(r):
    return "at 203.0.113.11" in r.out


CASES = [
    Case("W16-private-by-name", curl("http://rebind.test/"), reached, never),
    Case("W16-metadata-by-name", curl("http://meta.test/"), reached, never),
    Case("W16-private-tls", curl("-k", "https://rebind.test/"), reached,
         never),
    Case("metadata-by-address", curl("http://169.254.169.254/"), reached,
         never),
    Case("private-by-address", curl("http://10.9.9.9/"), reached, never),
    Case("W31-own-hosts-file-tls",
         curl("--resolve", "allowed.test:443:203.0.113.11",
              "https://allowed.test/"), at_other, pinned),
    Case("W31-own-hosts-file-http",
         curl("--resolve", "allowed.test:80:203.0.113.11",
              "http://allowed.test/"), at_other, pinned),
    Case("wildcard-is-not-its-apex",
         curl("-k", "--resolve", "wild.test:443:" + ADDRESS,
              "https://wild.test/"), reached, never),
    Case("port-not-in-rule-W18",
         curl("--connect-to", "allowed.test:8080:203.0.113.10:8080",
              "http://allowed.test:8080/"), reached, never),
    Case("denied-by-rule",
         curl("-k", "--resolve", "denied.test:443:203.0.113.11",
              "https://denied.test/"), reached, never),
    Case("host-field-is-an-address-W25",
         program(TCP, NOBODY, "80", GET % NOBODY, ""), reached, never),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_a_wildcard_covers_what_is_below(gate):
    r = gate.lab.agent("curl", "-sS", "https://a.wild.test/")
    assert "reached a.wild.test" in r.out, r


def test_case_and_trailing_dot_are_the_same_name(gate):
    for name in ("ALLOWED.Test", "allowed.test."):
        r = gate.lab.agent("curl", "-sSk", "http://%s/" % name)
        assert "reached allowed.test" in r.out, r


def test_a_name_of_our_own_loopback_is_not_dialled(gate):
    r = gate.lab.agent("curl", "-sS", "--resolve", "loop.test:80:" + ADDRESS,
                       "http://loop.test/")
    assert not reached(r) and "loop.test" in r.text, r
    assert "special_use" in r.text or "403" in r.text, r


def test_answers_of_the_front(gate):
    lab = gate.lab
    for via in ("udp", "tcp"):
        r = lab.python(ASK, "203.0.113.53", "allowed.test", "1", via)
        assert "rcode 0" in r.out and "address 203.0.113.10" in r.out, r
        r = lab.python(ASK, "203.0.113.53", "allowed.test", "16", via)
        assert "rcode 0 answers 0" in r.out, r
        # NULL is good for nothing but a tunnel
        r = lab.python(ASK, "203.0.113.53", "allowed.test", "10", via)
        assert "rcode 5" in r.out, r
        # AAAA without data under ipv6: drop
        r = lab.python(ASK, "203.0.113.53", "dual.test", "28", via)
        assert "rcode 0 answers 0" in r.out, r


def test_a_resolver_that_fails_is_said_so(gate):
    for name in ("broken.test", "silent.test"):
        r = gate.lab.agent("curl", "-sS", "-m", "12", "-w", "%{http_code}",
                           "--resolve", name + ":80:" + ADDRESS,
                           "http://%s/" % name)
        assert not reached(r) and "dns_" in r.text, r


def test_w26_b037_the_next_address_is_tried(gate):
    r = gate.lab.agent("curl", "-sS", "-m", "12", "http://down.test/")
    assert "reached down.test at 203.0.113.10" in r.out, r


def test_b47_a_name_that_turns_private_is_refused(gate):
    """The address that was checked is the one that is dialled; one that comes
    later is checked before it is."""
    lab = gate.lab
    get = ("curl", "-sSk", "-m", "8", "https://next.wild.test/")
    lab.names({**NAMES, "next.wild.test": ["203.0.113.10"]})
    try:
        assert "at 203.0.113.10" in lab.agent(*get).out
        lab.names({**NAMES, "next.wild.test": ["10.9.9.9"],
                   "turn.wild.test": ["10.9.9.9"]})
        assert "at 10.9.9.9" in lab.run("world", *get).out
        r = lab.agent(*get)
        assert "at 203.0.113.10" in r.out and "10.9" not in r.out, r
        r = lab.agent("curl", "-sSk", "-m", "8", "https://turn.wild.test/")
        assert not reached(r), r
    finally:
        lab.names(NAMES)


def test_b49_an_address_is_not_a_name(gate):
    """Two names on one address: the allowed one opens only itself."""
    lab = gate.lab
    assert reached(lab.agent("curl", "-sS", "https://allowed.test/"))
    r = lab.agent("curl", "-sSk", "--resolve", "evil.test:443:" + ADDRESS,
                  "https://evil.test/")
    assert not reached(r), r
    time.sleep(0.1)
    assert lab.record(name="evil.test", verdict="deny")["reason"] == "no_rule"


def test_aliases_and_truncated_answers(gate):
    lab = gate.lab
    for name in ("alias.test", "long.test"):
        r = lab.agent("curl", "-sSk", "-m", "8", "https://%s/" % name)
        assert "reached %s at 203.0.113.10" % name in r.out, r


def test_an_alias_of_a_private_address_is_refused(gate):
    r = gate.lab.agent("curl", "-sS", "-m", "8", "--resolve",
                       "alias-private.test:80:" + ADDRESS,
                       "http://alias-private.test/")
    assert not reached(r) and "special_use" in r.text, r


def test_w38_one_question_serves_many_connections(gate):
    lab = gate.lab
    for _ in range(5):
        assert reached(lab.agent("curl", "-sS", "http://other.test/"))
    before = lab.asked("other.test")
    assert reached(lab.agent("curl", "-sS", "http://other.test/"))
    assert before >= 1 and lab.asked("other.test") == before
