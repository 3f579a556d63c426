# SPDX-License-Identifier: Apache-2.0
"""The explicit listener of a gateway: beside the transparent one for whoever
is on the agents' side, and for nobody else.  Each attempt from elsewhere is
first seen to be answered without the rule, or by a proxy without a policy."""
import os

import pytest

from cases import ASK, GET, TCP, reached
from lab import NAMES, POLICY, PYTHON

INNER, OUTER = "198.18.0.1", "198.18.2.2"
INNER6, OUTER6 = "fd42:18::1", "fd42:2::2"
AG0 = ["    from: {interface: ag0}"]


def at(address, port=15080):
    return ("[%s]:%d" if ":" in address else "%s:%d") % (address, port)


def ask(lab, address, *more, space="world", url="http://allowed.test/",
        port=15080):
    """A host that is no agent asks the proxy at this address."""
    return lab.run(space, "curl", "-sS", "-g", "-i", "-m", "3", "-x",
                   "http://" + at(address, port), *more, url)


def variables(lab, *more):
    r = lab.verb("env", "-c", lab.conf, "--format", "docker", *more)
    assert r.status == 0 and not r.err, r
    return dict(line.split("=", 1) for line in r.out.splitlines())


def nothing(r):
    """No answer, not even a refusal."""
    assert r.status == 28 and not r.out and not r.arrived, r


def watched(lab, *args, **kw):
    return lab.watched(lambda lab: ask(lab, *args, **kw))


@pytest.fixture(scope="module", params=["drop", "proxy"])
def gateway(request, lab):
    """As configured without a word about listeners."""
    lab.up("gateway", ipv6=request.param, cells=AG0)
    with open(lab.conf) as f:
        assert "listeners" not in f.read()
    yield lab
    lab.down()


def test_who_has_the_variables_is_refused_in_words(gateway):
    lab, env = gateway, variables(gateway, "--cell", "agent-1")
    assert env["HTTPS_PROXY"] == "http://%s:15080" % INNER
    r = lab.agent("curl", "-sSv", "-m", "8", "https://evil.test/", env=env)
    assert r.status == 56 and "response 403" in r.err, r
    assert "Denied by penstock: no_rule evil.test:443" in r.err, r
    d = lab.record(kind="decision", name="evil.test", via="connect")
    assert (d["cell"], d["reason"]) == ("agent-1", "no_rule"), d
    for scheme in ("http", "https"):
        r = lab.agent("curl", "-sS", "-m", "8", scheme + "://allowed.test/",
                      env=env)
        assert reached(r), r
    assert lab.record(kind="decision", verdict="allow", via="connect")
    assert lab.record(kind="decision", verdict="allow", via="http")


def test_who_has_none_is_captured_all_the_same(gateway):
    lab, to = gateway, ("--resolve", "evil.test:443:203.0.113.10")
    r = lab.agent("curl", "-sSk", "-m", "8", *to, "https://evil.test/")
    assert not reached(r) and "alert" in r.err, r
    d = lab.record(kind="decision", name="evil.test", via="tproxy")
    assert (d["cell"], d["reason"]) == ("agent-1", "no_rule"), d
    r = lab.agent("curl", "-sS", "-m", "8", "https://allowed.test/")
    assert reached(r), r
    assert lab.record(kind="decision", verdict="allow", via="tproxy")


def test_ipv6_agents_have_it_where_they_have_ipv6(gateway, request):
    lab, ipv6 = gateway, request.node.callspec.params["gateway"]
    link = lab.ip("gateway", "-6", "-o", "addr", "show", "dev", "ag0",
                  "scope", "link").stdout.split()[3].split("/")[0]
    for address in (INNER6, link + "%25eth0"):
        r = lab.agent("curl", "-sS", "-g", "-m", "8", "-x", "http://" +
                      at(address), "http://evil.test/")
        if ipv6 == "proxy":
            assert "no_rule" in r.out, r
        else:
            assert r.status == 7 and r.seconds < 2, r


OTHERS = [("world", OUTER), ("world", INNER), ("world", OUTER6),
          ("world", INNER6)]


@pytest.fixture(scope="module")
def without_policy(lab):
    """What hosts of the uplink have from a proxy at the same port."""
    lab.unguarded("gateway")
    server = lab.start("gateway", PYTHON, "-c", TWO_FAMILIES, "15080",
                       stdout=-1)
    try:
        assert server.stdout.readline() == b"ready\n"
        return {o: ask(lab, o[1], space=o[0]) for o in OTHERS}
    finally:
        lab.stop(server)


# Not a proxy, and in its place: whoever asks is answered.
TWO_FAMILIES = """
import socket, sys
s = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6,
                         dualstack_ipv6=True)
print("ready", flush=True)
while True:
    c, _ = s.accept()
    c.recv(4096)
    c.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nreached here\\n")
    c.close()
"""


@pytest.fixture(scope="module")
def open_cell(without_policy, lab):
    """A cell that is everybody's, so that its `from` refuses nobody."""
    lab.up("gateway", ipv6="proxy", cells=[])
    yield lab
    lab.down()


@pytest.mark.parametrize("space,address", OTHERS)
def test_hosts_of_the_uplink_have_no_answer(without_policy, open_cell, space,
                                            address):
    assert reached(without_policy[space, address])
    nothing(watched(open_cell, address, space=space))
    assert not any(r["client"].startswith(("198.18.2.", "[fd42:2:"))
                   for r in open_cell.records() if r.get("client"))


def test_and_without_the_rule_none_but_a_refusal(open_cell):
    """The proxy looks at the interface as well, whosever cell it would be."""
    lab = open_cell
    r = lab.agent("curl", "-sS", "-m", "8", "-x", "http://%s:15080" % OUTER,
                  "http://allowed.test/")
    assert reached(r), r            # any address of ours, from that side
    lab.without("inp/foreign-tcp", "inp/self")
    try:
        for space, address in OTHERS + [("gateway", "127.0.0.1"),
                                        ("gateway", "::1")]:
            for url in ("http://allowed.test/", "https://allowed.test/"):
                r = watched(lab, address, space=space, url=url)
                assert not reached(r) and not r.arrived, r
                assert " 403 " in r.text.split("\n")[0], r
                assert "unknown_cell" in r.text, r
        told = lab.record(kind="decision", reason="unknown_cell")
        assert told["verdict"] == "deny" and "cell" not in told, told
        # the transparent one likewise
        r = lab.run("world", PYTHON, "-c", TCP, OUTER, "15001",
                    GET % "allowed.test", "")
        assert "got" in r.out or "error" in r.out, r
        assert not reached(r), r
        assert lab.record(kind="decision", reason="unknown_cell",
                          via="tproxy")
    finally:
        assert lab.verb("rules", "apply", "-c", lab.conf).status == 0


def test_the_gateways_own_programs_are_refused_at_once(open_cell):
    for address in ("127.0.0.1", "::1", INNER, OUTER):
        r = watched(open_cell, address, space="gateway")
        assert r.status == 7 and r.seconds < 2 and not r.arrived, r


def test_questions_are_the_agents_at_each_port(lab):
    """Of several places where they are taken."""
    def asked(via):
        return lab.run("world", PYTHON, "-c", ASK.replace("53)", "5353)"),
                       OUTER, "allowed.test", "1", via).out
    lab.up("gateway", cells=[],
           extra='dns: ["0.0.0.0:53", "0.0.0.0:5353"]\n')
    try:
        for via in ("udp", "tcp"):
            assert "error" in asked(via), via
        lab.without("inp/foreign-udp", "inp/foreign-tcp")
        for via in ("udp", "tcp"):
            assert "rcode 0 answers 1" in asked(via), via
    finally:
        lab.down()


def test_an_interface_of_no_cell_is_told_so(lab):
    """The kernel lets in who comes by one of `interfaces`."""
    ways = (("-x", "http://%s:15080" % INNER, "http://allowed.test/"),
            ("--resolve", "allowed.test:80:203.0.113.10",
             "http://allowed.test/"))

    def tried():
        return [lab.watched(lambda lab, w=w: lab.agent(
            "curl", "-sSi", "-m", "8", *w)) for w in ways]
    lab.up("gateway", cells=AG0)
    try:
        assert all(reached(r) for r in tried())
        lab.up("gateway", cells=["    from: {interface: ag9}"])
        proxied, captured = tried()
        for r in (proxied, captured):
            assert not reached(r) and not r.arrived and r.seconds < 2, r
        assert " 403 " in proxied.out and "unknown_cell" in proxied.out
        for via in ("http", "tproxy"):
            assert lab.record(kind="decision", reason="unknown_cell",
                              via=via)["verdict"] == "deny"
    finally:
        lab.down()


def test_an_interface_that_is_not_there_is_told(lab):
    lab.unguarded("gateway")
    lab.forward(False)
    lab.config("gateway", cells=AG0)
    try:
        r = lab.verb("rules", "apply", "-c", lab.conf)
        assert r.status == 0 and not r.text, r
        lab.serve()
        assert "no interface" not in lab.log()
        lab.stop(lab.penstock)
        with open(lab.conf) as f:
            text = f.read()
        with open(lab.conf, "w") as f:
            f.write(text.replace("[ag0]", "[ag0, agO]"))
        r = lab.verb("rules", "apply", "-c", lab.conf)
        assert r.status == 0 and "has the name agO; until" in r.err, r
        lab.serve()
        assert "no interface of this host has the name agO" in lab.log()
        assert "name ag0" not in lab.log() + r.err
    finally:
        lab.down()


OTHER = "198.18.4.1"            # the gateway for a second agent


@pytest.fixture(scope="module")
def two_agents(lab):
    """Each behind an interface and of a cell of its own."""
    lab.unguarded("gateway")
    lab.forward(False)
    lab._space("agent2")
    lab._wire("gateway", "ag1", "agent2", "eth0", "198.18.4", "fd42:4")
    lab._default("agent2", OTHER, "fd42:4::1")
    yield lab
    lab.down()
    lab.ip("gateway", "link", "del", "ag1")


def two_cells(lab, **how):
    lab.config("gateway", cells=AG0 + [
        "  - id: second", "    policy: [second.yaml]",
        "    from: {interface: ag1}"], **how)
    with open(lab.conf) as f:
        text = f.read()
    with open(lab.conf, "w") as f:
        f.write(text.replace("[ag0]", "[ag0, ag1]"))
    with open(os.path.join(os.path.dirname(lab.conf), "second.yaml"),
              "w") as f:
        f.write(POLICY.replace("hostname: allowed.test",
                               "hostname: evil.test"))
    assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
    lab.serve()


def test_each_cell_has_the_listener_and_stays_itself(two_agents):
    """At whichever of the gateway's addresses: the interface tells."""
    lab = two_agents
    two_cells(lab)
    try:
        for space, cell, own, name, other in (
                ("agent", "agent-1", INNER, "allowed.test", "evil.test"),
                ("agent2", "second", OTHER, "evil.test", "allowed.test")):
            env = variables(lab, "--cell", cell)
            assert env["http_proxy"] == "http://%s:15080" % own
            for address in (INNER, OTHER, OUTER):
                r = ask(lab, address, space=space,
                        url="http://%s/" % name)
                assert reached(r), r
                d = lab.records(kind="decision", via="http")[-1]
                assert (d["cell"], d["name"]) == (cell, name), d
                r = watched(lab, address, space=space,
                            url="http://%s/" % other)
                assert not r.arrived and "no_rule" in r.out, r
    finally:
        lab.down()


def test_of_given_addresses_each_cell_has_its_own(two_agents):
    lab = two_agents
    two_cells(lab, explicit=[at(INNER, 3128), at(OTHER, 3129)])
    try:
        for space, cell, own, far in (
                ("agent", "agent-1", (INNER, 3128), (OTHER, 3129)),
                ("agent2", "second", (OTHER, 3129), (INNER, 3128))):
            env = variables(lab, "--cell", cell)
            assert env["http_proxy"] == "http://" + at(*own)
            r = ask(lab, own[0], port=own[1], space=space,
                    url="http://git.test/")
            assert reached(r), r
            r = watched(lab, far[0], port=far[1], space=space,
                        url="http://git.test/")
            assert r.status == 7 and r.seconds < 2 and not r.arrived, r
    finally:
        lab.down()


# ---- addresses that the operator gave ----

def test_a_given_address_is_answered_by_its_own_interface(lab):
    """A host of the uplink that sends to the agents' side of the gateway."""
    lab.unguarded("gateway")
    lab.plain()
    assert reached(ask(lab, INNER))
    lab.up("gateway", ipv6="proxy", cells=[],
           explicit=[at(INNER), at(INNER6)])
    try:
        for address in (INNER, INNER6):
            r = lab.agent("curl", "-sSg", "-m", "8", "-x", "http://" +
                          at(address), "http://allowed.test/")
            assert reached(r), r
            nothing(watched(lab, address))
        # what it was before that rule, and is without
        lab.without("inp/elsewhere4", "inp/elsewhere6")
        for address in (INNER, INNER6):
            assert reached(watched(lab, address)), address
        # and what has no rule is the operator's: on the uplink's address
        lab.up("gateway", cells=[], explicit=[at(OUTER)])
        assert reached(watched(lab, OUTER))
        r = lab.run("gateway", "curl", "-sS", "-m", "3", "-x", "http://" +
                    at(OUTER), "http://allowed.test/")
        assert reached(r), r
    finally:
        lab.down()


def test_an_agent_takes_no_cell_by_a_listener_of_another_side(lab):
    """What is offered to hosts of the uplink has a cell of its own, which
    would be that of whoever connects there."""
    both = AG0 + ["  - id: far", "    policy: [far.yaml]",
                  "    from: {listener: explicit}"]
    over = ("curl", "-sS", "-m", "4", "-x", "http://%s:15080" % OUTER,
            "http://evil.test/")
    lab.unguarded("gateway")
    lab.forward(False)
    lab.config("gateway", cells=both, explicit=[at(OUTER)])
    with open(os.path.join(os.path.dirname(lab.conf), "far.yaml"), "w") as f:
        f.write(POLICY.replace("hostname: allowed.test",
                               "hostname: evil.test"))
    try:
        assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
        lab.serve()
        assert reached(ask(lab, OUTER, url="http://evil.test/"))
        r = lab.watched(lambda lab: lab.agent(*over))
        assert r.status == 7 and r.seconds < 2 and not r.arrived, r
        # where agents are let in to any address of the gateway
        r = lab.run("gateway", "nft", "insert", "rule", "inet", "penstock",
                    "inp", "iifname", "ag0", "tcp", "dport", "15080",
                    "accept")
        assert r.status == 0, r
        assert reached(lab.agent(*over))
    finally:
        lab.down()


def test_a_credential_is_good_where_it_is_offered(lab):
    """On the uplink's address, when the operator says so."""
    made = lab.run("world", lab.binary, "token").text
    token = made.split("token:")[1].split()[0]
    hashed = made.split("credential:")[1].split()[0]
    lab.up("gateway", credential=True, explicit=[at(OUTER), at(INNER)],
           cells=["    from: {credential: \"%s\"}" % hashed])
    try:
        r = watched(lab, OUTER)
        assert " 407 " in r.out and not r.arrived, r
        user = ("-U", "agent-1:" + token)
        assert reached(watched(lab, OUTER, *user))
        nothing(watched(lab, INNER, *user))
        lab.without("inp/elsewhere4")
        assert reached(watched(lab, INNER, *user))
    finally:
        lab.down()


# ---- what is penstock's own is no destination ----

OWN = [at(a, p) for a in (INNER, OUTER, "127.0.0.1", INNER6, "::1")
       for p in (15080, 15001)] + ["own.test:15080", "own.test:15001"]
WIDE = POLICY.replace("  rule:\n", """  rule:
    - {verdict: allow, hostname: own.test, ports: [15080, 15001], protocol: tcp}
    - {verdict: allow, cidr: 198.18.0.0/15, ports: [15080, 15001]}
    - {verdict: allow, cidr: "fd42::/16", ports: [15080, 15001]}
""")


@pytest.mark.parametrize("form", ["connect", "absolute"])
def test_no_way_leads_back_to_penstock(lab, form):
    """Whatever a policy opens there: by each address and by a name."""
    def tried():
        got = {}
        for to in OWN:
            if form == "connect":
                head = "CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % \
                    (to, to)
            else:
                head = "GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\n" \
                    "Connection: close\\r\\n\\r\\n" % (to, to)
            got[to] = lab.python(
                TCP, INNER, "15080", head +
                "GET http://allowed.test/ HTTP/1.1\\r\\n"
                "Host: allowed.test\\r\\nConnection: close\\r\\n"
                "\\r\\n", "", "4")
        return got
    lab.names({**NAMES, "own.test": [OUTER]})
    try:
        lab.unguarded("gateway")
        lab.plain()
        leaks = tried() if form == "connect" else {}
        assert all(reached(r) for to, r in leaks.items()
                   if to[0] == "1"), leaks
        lab.up("gateway", ipv6="proxy", cells=AG0, policy=WIDE)
        for to, r in tried().items():
            assert not reached(r) and "HTTP/1.1 4" in r.out, (to, r)
            assert any(w in r.out for w in ("own_listener", "special_use",
                                            "address_literal")), (to, r)
    finally:
        lab.names(NAMES)
        lab.down()
