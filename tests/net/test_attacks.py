# SPDX-License-Identifier: Apache-2.0
"""Attempts of an attacker who knows how the guard reads."""
from cases import GET, TCP, Case, check_pair

ADDRESS = "203.0.113.10"


def evil(r):
    return "reached evil.test" in r.out


def closed(lab, r):
    assert not evil(r), r


def junk(first):
    """Bytes that a server skips or answers, then a request it serves."""
    def attempt(lab):
        # a name that is allowed has this address now
        assert lab.agent("getent", "hosts", "allowed.test").status == 0
        return lab.python(TCP, ADDRESS, "80", first + GET % "evil.test", "")
    return attempt


CASES = [
    Case("junk-two-empty-lines", junk("\\r\\n\\r\\n"), evil, closed),
    Case("junk-line-feed", junk("\\n"), evil, closed),
    Case("junk-long-method", junk("Z" * 30), evil, closed),
    Case("junk-longer-method", junk("Z" * 60), evil, closed),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)
