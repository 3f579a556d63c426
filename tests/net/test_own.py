# SPDX-License-Identifier: Apache-2.0
"""What is penstock's host itself: its gateway and an address of its own, by an
allowed name.  Each attempt leaks while the address is another machine's as far
as penstock knows, and is closed when it becomes the gateway, or its own, under
a penstock that serves."""
import time

import pytest

from cases import reached
from lab import NAMES, POLICY, LabError

NEAR = "203.0.113.10"           # what the name leads to
UPLINK = {"gateway": ("up0", "198.18.2.1"), "shared": ("eth0", "198.18.3.1")}
WEB = ("curl", "-sS", "-m", "8", "--resolve")


def by_name(lab):
    """Whatever address the agent shows, the name's own is dialled."""
    return lab.agent(*WEB, "allowed.test:80:203.0.113.11",
                     "http://allowed.test/")


def in_use(lab, before):
    """A policy with another list of what is penstock's own."""
    end = time.monotonic() + 5
    while len(lab.records(kind="policy")) <= before:
        if time.monotonic() > end:
            raise LabError("no other policy\n" + lab.log())
        time.sleep(0.05)
    time.sleep(0.2)             # each role takes it


def changed(lab, *argv):
    before = len(lab.records(kind="policy"))
    lab.ip(lab.space, *argv)
    in_use(lab, before)


def closed(lab, r, reason):
    """By the pin that is left, or by the answer to a question."""
    assert not reached(r) and not r.arrived, r
    d = lab.record(name="allowed.test", kind="decision", verdict="deny")
    assert d["reason"] in (reason, "dns_special_use"), d
    assert d["generation"] > 1, d


@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_the_gateway_is_reached_by_no_name(lab, mode):
    device, was = UPLINK[mode]
    lab.unguarded(mode)
    lab.names(NAMES)
    lab.up(mode)
    route = ("route", "replace", "default", "via")
    try:
        r = lab.watched(by_name, True)
        assert reached(r) and r.arrived, r
        changed(lab, *route, NEAR, "dev", device, "onlink")
        closed(lab, lab.watched(by_name), "special_use")
        changed(lab, *route, was, "dev", device)
        r = lab.watched(by_name, True)
        assert reached(r) and r.arrived, r
    finally:
        lab.ip(lab.space, *route, was, "dev", device)
        lab.down()


def ruled(cidr):
    """Before any rule that denies a name, which may be the one not shown."""
    return POLICY.replace("  rule:\n", "  rule:\n    - {verdict: allow, "
                          "cidr: %s, ports: [8080]}\n" % cidr)


def test_a_prefix_rule_opens_the_gateway_when_it_names_it(lab):
    device, was = UPLINK["gateway"]
    route = ("route", "replace", "default", "via")

    def attempt(on):
        return on.agent("curl", "-sS", "-m", "8", "-H", "Host: x.test",
                        "http://%s:8080/" % NEAR)
    for cidr, opens in (("203.0.113.0/24", False), (NEAR + "/32", True)):
        lab.up("gateway", policy=ruled(cidr))
        try:
            r = lab.watched(attempt, True)
            assert r.arrived, r
            changed(lab, *route, NEAR, "dev", device, "onlink")
            r = lab.watched(attempt, opens)
            assert bool(r.arrived) is opens, r
        finally:
            lab.ip(lab.space, *route, was, "dev", device)
            lab.down()


def test_an_address_that_becomes_its_own_is_dialled_no_more(lab):
    lab.up("gateway")
    try:
        r = lab.watched(by_name, True)
        assert reached(r) and r.arrived, r
        changed(lab, "addr", "add", NEAR + "/32", "dev", "lo")
        closed(lab, lab.watched(by_name), "own_listener")
    finally:
        lab.ip(lab.space, "addr", "del", NEAR + "/32", "dev", "lo",
               check=False)
        lab.down()
