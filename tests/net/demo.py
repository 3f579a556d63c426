#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The guided demonstration: a dozen attempts to get out of an agent's
namespace through penstock, what was expected, what was got, and the records.

usage: demo.py BINARY      (root; leaves nothing behind)
"""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import ASK, GET, SINKHOLE, TCP, UDP  # noqa: E402
from lab import Lab, LabError, script  # noqa: E402



def curl(lab, *args, **kw):
    return lab.agent("curl", "-sS", "-m", "10", *args, **kw)


def https(lab):
    return curl(lab, "https://allowed.test/")


def clone(lab):
    r = lab.agent("sh", "-c", "rm -rf clone; cd $HOME && "
                  "git clone -q https://git.test/git/project.git clone && "
                  "cat clone/file")
    return r


def http(lab):
    return curl(lab, "http://allowed.test/")


def question(lab):
    return lab.python(ASK, "203.0.113.53", "evil.test", "1", "udp")


def denied(lab):
    return curl(lab, "https://evil.test/")


def known(lab):
    return curl(lab, "-k", "--resolve", "evil.test:443:203.0.113.10",
                "https://evil.test/")


def spoofed(lab):
    return curl(lab, "--resolve", "allowed.test:443:203.0.113.11",
                "https://allowed.test/")


def fronted(lab):
    return lab.agent("/usr/bin/python3", script("tricks.py"), "connect",
                     lab.proxy_address, "allowed.test", "evil.test")


def address(lab):
    return curl(lab, "-i", "http://203.0.113.11/")


def private(lab):
    return curl(lab, "-i", "--resolve", "rebind.test:80:203.0.113.10",
                "http://rebind.test/")


def split(lab):
    return lab.agent("/usr/bin/python3", script("tricks.py"), "split",
                     "203.0.113.10", "allowed.test")


def udp(lab):
    return lab.python(UDP, "203.0.113.10", "443", "quic")


def ipv6(lab):
    return curl(lab, "-6", "http://[2001:db8:113::10]/")


def second(lab):
    return lab.python(TCP, "203.0.113.10", "80",
                      "GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n" +
                      GET % "evil.test", "")


# attempt, how, expected, what shows it, what must not show
ATTEMPTS = [
    ("https to an allowed name", https, "answered",
     ["reached allowed.test at 203.0.113.10"], []),
    ("git clone over https", clone, "cloned", ["cloned"], []),
    ("http to an allowed name", http, "answered",
     ["reached allowed.test at 203.0.113.10"], []),
    ("DNS question for a denied name", question, "sinkhole",
     ["address " + SINKHOLE], ["203.0.113"]),
    ("https to a denied name", denied, "TLS alert", ["alert"], ["reached"]),
    ("the same to an address it knows", known, "TLS alert", ["alert"],
     ["reached"]),
    ("allowed SNI to another address", spoofed, "own address",
     ["at 203.0.113.10"], ["203.0.113.11"]),
    ("SNI other than CONNECT's name", fronted, "TLS alert", ["ACCESS_DENIED"],
     ["reached"]),
    ("http to an address", address, "403", ["HTTP/1.1 403", "address_literal"], ["reached"]),
    ("private address by an allowed name", private, "403",
     ["HTTP/1.1 403", "dns_special_use"], ["reached"]),
    ("ClientHello split in 40 pieces", split, "answered",
     ["reached allowed.test"], []),
    ("UDP 443 (QUIC)", udp, "error at once", ["error"], ["got"]),
    ("IPv6", ipv6, "error at once", ["curl: ("], ["reached"]),
    ("second request, other Host", second, "200 then 403",
     ["reached allowed.test", "HTTP/1.1 403", "no_rule"],
     ["reached evil.test"]),
]


# What these end in; the others are refused.
ALLOWED = ("answered", "cloned", "own address")


def reason_since(lab, start, expected, recorded):
    """The word of the newest decision of this attempt, which may be told a
    little later than its client is answered.  A refusal by the kernel has
    none, and is waited for a moment only."""
    verdict = "allow" if expected in ALLOWED else "deny"
    end = time.monotonic() + (3 if recorded else 0.4)
    while True:
        found = [r for r in lab.records()[start:]
                 if r["kind"] in ("decision", "dns")
                 and r.get("verdict") == verdict]
        judged = [r for r in found if r["kind"] == "decision"] or found
        if judged and (judged[-1]["kind"] == "decision" or
                       expected == "sinkhole"):
            return judged[-1]["reason"]
        if time.monotonic() > end:
            return "-"
        time.sleep(0.02)


def attempt(lab, name, how, expected, shows, hides):
    start = len(lab.records())
    r = how(lab)
    ok = all(s in r.text for s in shows) and \
        not any(h in r.text for h in hides)
    got = expected if ok else "DIFFERENT"
    reason = reason_since(lab, start, expected, how not in (udp, ipv6))
    if reason == "-":
        reason = "kernel rules" if how in (udp, ipv6) else "-"
    print("%-36s %-15s %-15s %s" % (name, expected, got, reason), flush=True)
    if not ok:
        print("    %s" % repr(r).replace("\n", "\n    "))
    return ok


def without_guard(lab):
    """The same network without penstock, so that what follows means
    something."""
    lab.unguarded("gateway")
    ways = [denied(lab), udp(lab), ipv6(lab)]
    open_ = [("reached" in r.out or "got" in r.out) for r in ways]
    print("without penstock: denied name %s, UDP %s, IPv6 %s\n" % tuple(
        "reached" if o else "NOT reached" for o in open_))
    return all(open_)


def run(binary):
    began = time.monotonic()
    with Lab(binary) as lab:
        good = without_guard(lab)
        lab.up("gateway")
        print("with penstock, mode gateway:")
        print("%-36s %-15s %-15s %s" % ("attempt", "expected", "got",
                                        "reason"))
        print("-" * 84)
        results = [attempt(lab, *a) for a in ATTEMPTS]
        time.sleep(0.3)
        print("\nrecords:")
        for r in lab.records():
            print("  " + json.dumps(r, separators=(",", ":")))
        if not lab.records(kind="decision"):
            print("no decision was recorded")
            good = False
    print("\ndemo: %d as expected, %d different, %.0f s" % (
        sum(results), len(results) - sum(results), time.monotonic() - began))
    return 0 if good and all(results) else 1


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("demo: needs root for network namespaces", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(os.path.abspath(sys.argv[1]))
    except LabError as e:
        print("demo: %s" % e, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
