# SPDX-License-Identifier: Apache-2.0
"""Names that the policy denies: what a resolver is told, where the client is
led, and what it prints there.  The commands of test_clients come the same
way; here are those whose protocol shows no name."""
import pytest

from cases import (ASK, SINKHOLE, TCP, Case, check_pair, curl, led_astray,
                   reached)
from lab import POLICY
from test_clients import printed, shell, ssh

# The type, the code and the extended error (RFC 8914) of each question, and
# what came with its time to live.
DIG = """
import dns.edns, dns.message, dns.query, dns.rcode, sys
server, name, *kinds = sys.argv[1:]
for kind in kinds:
    q = dns.message.make_query(name, kind, use_edns=0)
    a = dns.query.udp(q, server, timeout=4)
    why = [o for o in a.options if o.otype == dns.edns.OptionType.EDE]
    print(kind, dns.rcode.to_text(a.rcode()),
          *["%d %s" % (o.code, o.text) for o in why],
          *["%s/%d" % (rr, s.ttl) for s in a.answer for rr in s], sep=", ")
"""
TYPES = ("A", "AAAA", "MX", "TXT", "SRV", "HTTPS")


def dig(lab, name, *kinds):
    r = lab.python(DIG, "203.0.113.53", name, *kinds)
    assert r.status == 0, r
    return r.out.splitlines()


def psql(lab):
    return lab.agent("psql", "-X", "-c", "select 1", "host=evil.test "
                     "port=5433 user=a dbname=b connect_timeout=8 "
                     "sslmode=prefer")


def closed_with_record(port, word, status=None):
    """The client is told at once, and the record says where it wanted to."""
    def closed(lab, r):
        printed(word, status=status)(lab, r)
        assert r.seconds < 4, r
        found = lab.record(kind="decision", verdict="deny",
                           original="%s:%d" % (SINKHOLE, port))
        assert found["reason"] == "sinkhole", found
    return closed


CASES = [
    Case("ssh", lambda lab: ssh(lab, "evil.test"), shell,
         closed_with_record(22, "reset by"), logged=False),
    Case("psql", psql, lambda r: "FATAL:  reached" in r.err,
         closed_with_record(5433, "closed the connection unexpectedly")),
    # a server that has this address is not reached by it, whatever is shown
    Case("http-to-it", curl("-H", "Host: allowed.test",
                            "http://%s/" % SINKHOLE),
         lambda r: "at " + SINKHOLE in r.out,
         lambda lab, r: "reached allowed.test at 203.0.113.10" in r.out or
         pytest.fail(repr(r))),
    Case("opaque-to-it", lambda lab: lab.python(
        TCP, SINKHOLE, "22", "x\\r\\n", ""), lambda r: "SSH-2.0" in r.out,
         closed_with_record(22, "ConnectionResetError", 0), logged=False),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_a_denied_name_is_answered_here_with_its_reason(gate):
    lab = gate.lab
    before = lab.asked("evil.test"), lab.asked("denied.test")
    for name, why in (("evil.test", "15 no_rule"),
                      ("denied.test", "18 rule_deny: rule no-denied")):
        told = dig(lab, name, *TYPES)
        assert told[0] == "A, NOERROR, %s, %s/1" % (why, SINKHOLE), told
        assert told[1:] == ["%s, NOERROR, %s" % (t, why)
                            for t in TYPES[1:]], told
    assert (lab.asked("evil.test"), lab.asked("denied.test")) == before


def test_what_no_client_connects_to_is_not_there(gate):
    """Single labels, multicast DNS, reverse names: nothing is asked of them
    upstream, and a resolver goes on to its next name."""
    for name in ("build-17", "printer.local", "5.113.0.203.in-addr.arpa",
                 "1.0.0.0.ip6.arpa"):
        before = gate.lab.asked(name)
        told = dig(gate.lab, name, "A")
        assert told == ["A, NXDOMAIN, 15 no_rule"], (name, told)
        assert gate.lab.asked(name) == before


def test_the_record_has_what_the_client_wanted(gate):
    lab = gate.lab
    r = lab.agent("curl", "-sS", "-m", "8", "https://evil.test/")
    assert r.status == 35 and "access denied" in r.err, r
    found = lab.record(kind="decision", verdict="deny",
                       original=SINKHOLE + ":443")
    assert found["name"] == "evil.test" and found["reason"] == "no_rule"
    assert found["ja4"].startswith("t13d"), found
    asked = lab.record(kind="dns", verdict="deny", name="evil.test")
    assert asked["rcode"] == "NOERROR" and asked["reason"] == "no_rule"


def test_a_name_that_becomes_allowed_is_reached_at_once(lab):
    """What a client still holds leads it to penstock, which dials the
    server's own address."""
    lab.up("gateway")
    led_astray(lab.python(ASK, "203.0.113.53", "evil.test", "1", "udp"))
    with open(lab.policy, "a") as f:
        f.write("    - {verdict: allow, hostname: evil.test}\n")
    lab.penstock.send_signal(1)
    lab.record(kind="policy", generation=2)
    for more in ((), ("--resolve", "evil.test:443:" + SINKHOLE)):
        r = lab.agent("curl", "-sS", "-m", "8", "https://evil.test/", *more)
        assert "reached evil.test at 203.0.113.10" in r.out, r


WORDS = [("nxdomain", "A, NXDOMAIN, 15 no_rule", "Could not resolve"),
         ("refused", "A, REFUSED, 15 no_rule", "Could not resolve")]


@pytest.mark.parametrize("word,told,printed_", WORDS)
def test_the_other_words(lab, word, told, printed_):
    lab.up("gateway", extra="dns: {denied_names: %s}\n" % word)
    assert dig(lab, "evil.test", "A") == [told]
    r = lab.agent("curl", "-sS", "-m", "15", "https://evil.test/")
    assert r.status == 6 and printed_ in r.err, r
    assert reached(lab.agent("curl", "-sS", "-m", "8",
                             "https://allowed.test/"))


def test_names_below_a_search_suffix_are_not_there(lab):
    """glibc goes through its list, and the name itself is found behind it."""
    lab.up("gateway", extra="dns: {search: [svc.lab.test, lab.test]}\n")
    assert dig(lab, "evil.lab.test", "A") == ["A, NXDOMAIN, 15 no_rule"]
    path = "/etc/netns/%s/resolv.conf" % lab.ns("agent")
    with open(path) as f:
        before = f.read()
    try:
        with open(path, "a") as f:
            f.write("search svc.lab.test lab.test\noptions ndots:5\n")
        r = lab.agent("curl", "-sS", "-m", "8", "https://allowed.test/")
        assert reached(r) and r.seconds < 4, r
    finally:
        with open(path, "w") as f:
            f.write(before)
    for suffix in ("svc.lab.test", "lab.test"):
        assert lab.asked("allowed.test." + suffix) == 0


def test_addresses_of_ones_own_over_both_families(lab):
    """IPv6 is judged here: a client that has nothing else is led there too."""
    lab.up("gateway", ipv6="proxy", extra="dns: {sinkhole: [192.0.2.77, "
           "\"3fff::77\"]}\n")
    assert dig(lab, "evil.test", "A", "AAAA") == [
        "A, NOERROR, 15 no_rule, 192.0.2.77/1",
        "AAAA, NOERROR, 15 no_rule, 3fff::77/1"]
    for family in "-4", "-6":
        r = lab.agent("curl", "-sS", family, "-m", "8", "http://evil.test/")
        assert "penstock refused evil.test:80" in r.out, r
    lab.record(kind="decision", verdict="deny", original="[3fff::77]:80")


@pytest.mark.parametrize("line", [
    "lab: [203.0.113.0/24, 192.0.2.0/24]", "cidr: 192.0.2.0/28"])
def test_a_policy_that_opens_the_address_is_refused(lab, line):
    """It would be dialled."""
    policy = POLICY.replace('lab: [203.0.113.0/24, "2001:db8:113::/64"]',
                            line) if line.startswith("lab") else \
        POLICY + "    - {verdict: allow, %s, ports: [80]}\n" % line
    lab.unguarded("gateway")
    lab.config("gateway", policy)
    r = lab.verb("check", lab.conf)
    assert r.status == 78 and "denied names lead to" in r.text and \
        "dns.sinkhole" in r.text, r
