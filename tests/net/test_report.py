# SPDX-License-Identifier: Apache-2.0
"""`default: report`: what no rule matches passes and is told, and nothing
else is opened by it."""
import datetime

import pytest

from cases import (ASK, TCP, UDP, Case, check_pair, curl, led_astray,
                   program, reached)

ADDRESS = "203.0.113.10"
SPEAKS_FIRST = "203.0.113.15"   # echo.test on port 7000
POLICY = """\
version: 1
network:
  default: report
  report_until: %s
  resolvers: [203.0.113.53]
  lab: [203.0.113.0/24, "2001:db8:113::/64"]
  rule:
    - {verdict: deny, hostname: denied.test, reason: "use the artifact store", id: no-denied}
    - {verdict: allow, hostname: allowed.test, ports: [80, 443]}
"""


def until(days):
    """A policy whose report ends so many days from now."""
    day = datetime.datetime.now(datetime.timezone.utc) + \
        datetime.timedelta(days=days)
    return POLICY % day.date()


SETTINGS = {"policy": until(30)}


def to_denied(scheme, *args):
    port = {"http": 80, "https": 443}[scheme]
    return curl("-k", *args, "--resolve", "denied.test:%d:203.0.113.11" %
                port, scheme + "://denied.test/")


def refused(reason, **want):
    """Nothing came back, and the record says why."""
    def closed(lab, r):
        assert not reached(r) and not r.arrived, r
        d = lab.record(kind="decision", verdict="deny", reason=reason, **want)
        assert "would" not in d, d
    return closed


def no_address(r):
    assert "rcode" in r.out and "address" not in r.out, r


def unanswered(name, reason, told=no_address):
    def closed(lab, r):
        told(r)
        d = lab.record(kind="dns", name=name, qtype=1)
        assert d["verdict"] == "deny" and d["reason"] == reason, d
    return closed


# Silent until penstock has let it pass as nameless; then two requests on it.
LATE = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 8080), 5)
s.settimeout(5)
time.sleep(1)
for name in sys.argv[2:]:
    s.sendall(b"GET /?late HTTP/1.1\\r\\nHost: %s:8080\\r\\n\\r\\n" %
              name.encode())
    data = b""
    try:
        while b"reached" not in data and b"penstock refused" not in data:
            d = s.recv(4096)
            if not d:
                break
            data += d
    except OSError as e:
        print("error", type(e).__name__)
    print(name, data.decode("latin-1"))
"""


def late(*names):
    """To the address of a name that was looked up."""
    def attempt(lab):
        lab.agent("getent", "hosts", "git.test")
        return lab.python(LATE, ADDRESS, *names)
    return attempt


def reached_late(name):
    return lambda r: "reached " + name in r.out


def later_refused(lab, r):
    """The first of its requests passes, the second has a judge too."""
    assert "reached git.test" in r.out, r
    assert "reached denied.test" not in r.out and " 403 " in r.out, r
    flow = lab.record(kind="decision", original=ADDRESS + ":8080",
                      reason="nameless")
    assert flow["would"] == "deny" and "request" not in flow, flow
    for n, name, verdict in ((1, "git.test", "allow"),
                             (2, "denied.test", "deny")):
        d = lab.record(kind="decision", connection=flow["connection"],
                       request=n)
        assert d["name"] == name and d["name_from"] == "host", d
        assert d["verdict"] == verdict and d["path"] == "/?late", d
        assert lab.record(kind="end", connection=flow["connection"],
                          request=n)["name"] == name
    assert d["reason"] == "rule_deny" and d["rule"] == "no-denied", d


def dropped(lab, r):
    """By the kernel's rules, which know of no report."""
    assert "error" in r.out and not r.arrived, r


def answered(r):
    return "got" in r.out and "error" not in r.out


CASES = [
    Case("denied-http", to_denied("http"), reached,
         refused("rule_deny", name="denied.test", rule="no-denied")),
    Case("denied-https", to_denied("https"), reached,
         refused("rule_deny", name="denied.test", name_from="sni")),
    Case("denied-name-asked", program(ASK, "203.0.113.53", "denied.test",
                                      "1", "udp"),
         lambda r: "address 203.0.113.11" in r.out,
         unanswered("denied.test", "rule_deny", led_astray), logged=False),
    # the name that is not shown may be the one that is denied
    Case("nameless-unpinned", program(TCP, SPEAKS_FIRST, "7000", "", ""),
         lambda r: "got ready" in r.out,
         refused("rule_deny", original=SPEAKS_FIRST + ":7000")),
    Case("denied-late", late("denied.test"), reached_late("denied.test"),
         refused("rule_deny", name="denied.test", path="/?late")),
    Case("denied-later", late("git.test", "denied.test"),
         reached_late("denied.test"), later_refused),
    Case("special-use-by-name",
         curl("--resolve", "meta.test:80:169.254.169.254",
              "http://meta.test/"), reached,
         refused("dns_special_use", name="meta.test")),
    Case("private-by-name", curl("-k", "--resolve", "rebind.test:443:10.9.9.9",
                                 "https://rebind.test/"), reached,
         refused("dns_special_use", name="rebind.test")),
    Case("special-use-asked", program(ASK, "203.0.113.53", "meta.test", "1",
                                      "udp"),
         lambda r: "address 169.254.169.254" in r.out,
         unanswered("meta.test", "dns_special_use"), logged=False),
    Case("special-use-by-address", curl("http://169.254.169.254/"), reached,
         refused("rule_deny", original="169.254.169.254:80")),
    Case("udp", program(UDP, ADDRESS, "9999", "out"), answered, dropped),
    Case("quic", program(UDP, ADDRESS, "443", "out"), answered, dropped),
    Case("ipv6", program(TCP, "2001:db8:113::10", "7000", "", ""),
         lambda r: "got ready" in r.out, dropped),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


# ---- what passes, and what is told of it ----

def by_proxy(lab):
    return lab.agent("curl", "-sSk", "-m", "8", "https://evil.test/",
                     env=lab.proxy_env())


def pinned(lab):
    """A server that speaks first, where a looked-up name leads."""
    lab.agent("getent", "hosts", "echo.test")
    return lab.python(TCP, SPEAKS_FIRST, "7000", "", "")


UNLISTED = {
    "https": (curl("-k", "--resolve", "evil.test:443:" + ADDRESS,
                   "https://evil.test/"), "reached evil.test",
              {"name": "evil.test", "name_from": "sni",
               "reason": "no_rule"}),
    "http": (curl("--resolve", "other.test:80:203.0.113.11",
                  "http://other.test/"), "reached other.test",
             {"name": "other.test", "name_from": "host",
              "reason": "no_rule"}),
    "port": (curl("http://allowed.test:8080/"), "reached allowed.test",
             {"name": "allowed.test", "original": ADDRESS + ":8080",
              "reason": "no_rule"}),
    "connect": (by_proxy, "reached evil.test",
                {"name": "evil.test", "via": "connect",
                 "reason": "no_rule"}),
    "speaks-first": (pinned, "got ready",
                     {"original": SPEAKS_FIRST + ":7000",
                      "reason": "nameless"}),
}


@pytest.mark.parametrize("what", UNLISTED)
def test_what_no_rule_matches_passes_and_is_told(gate, what):
    attempt, word, want = UNLISTED[what]
    r = gate.lab.watched(attempt, True)
    assert word in r.out and r.arrived, r
    d = gate.lab.record(kind="decision", **want)
    assert d["verdict"] == "allow" and d["would"] == "deny", d


def test_a_question_that_no_rule_matches_is_told(gate):
    r = gate.lab.python(ASK, "203.0.113.53", "git.test", "1", "udp")
    assert "address " + ADDRESS in r.out, r
    d = gate.lab.record(kind="dns", name="git.test")
    assert d["verdict"] == "allow" and d["would"] == "deny", d
    assert d["reason"] == "no_rule", d


def test_what_a_rule_allows_is_told_as_ever(gate):
    assert reached(curl("https://allowed.test/")(gate.lab))
    d = gate.lab.record(kind="decision", name="allowed.test", reason="rule")
    assert d["verdict"] == "allow" and "would" not in d, d


def enforces(lab):
    """What each place says of it; they agree."""
    start = lab.records(kind="start")[0]["detail"]
    status, ready = lab.get("/readyz")
    assert status == 200, ready
    said = {
        "log": "NOT ENFORCING" not in lab.log() and
        " enforcing generation" in lab.log(),
        "record": "not enforcing" not in start and " enforcing" in start,
        "readyz": "not enforcing" not in ready,
        "metrics": [line[-1] == "1" for line in
                    lab.get("/metrics")[1].splitlines() if
                    line.startswith('penstock_check_ok{check="enforcing"')],
        "status": '"enforcing":true' in lab.get("/status")[1],
    }
    said["metrics"] = said["metrics"][0]
    assert len(set(said.values())) == 1, said
    return said["log"]


def test_b74_it_is_said_not_to_enforce(gate):
    assert not enforces(gate.lab)


# Here the report is what the attempt succeeds under.
@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_b74_a_report_that_is_over_is_deny(lab, mode):
    try:
        lab.up(mode, policy=until(0))       # its last day
        assert not enforces(lab)
        for attempt, word, want in UNLISTED.values():
            r = lab.watched(attempt, True)
            assert word in r.out and r.arrived, r
        lab.up(mode, policy=until(-1))
        assert enforces(lab)
        assert "report_until is over" in lab.log()
        for attempt, word, want in UNLISTED.values():
            r = lab.watched(attempt)
            assert word not in r.out and not r.arrived, r
            if "name" not in want:
                want = {"original": want["original"]}
            d = lab.record(kind="decision", **{
                k: v for k, v in want.items() if k != "name_from"})
            assert d["verdict"] == "deny" and "would" not in d, d
        assert reached(curl("https://allowed.test/")(lab))
    finally:
        lab.down()
