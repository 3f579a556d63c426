# SPDX-License-Identifier: Apache-2.0
"""The ClientHello as hostile clients send it."""

from cases import Case, check_pair, curl, reached
from lab import script

TRICKS = script("tricks.py")
ADDRESS = "203.0.113.10"

H2 = "203.0.113.21"


def trick(*args):
    return lambda lab: lab.agent("/usr/bin/python3", TRICKS, *args)


def alert(lab, r):
    assert not reached(r), r
    assert "alert" in r.text.lower() or "ACCESS_DENIED" in r.text, r


def ended(lab, r):
    assert not reached(r), r
    assert "error" in r.out or "alert" in r.out or "b''" in r.out, r


def at_its_own(lab, r):
    """What is asked for inside cannot be seen; where it goes can."""
    assert "reached hidden.test at " + ADDRESS in r.out, r
    end = lab.record(kind="end", name="allowed.test", dialled=ADDRESS + ":443")
    assert end["verdict"] == "allow", end


def one_name(lab, r):
    """Who is to share a connection must have the same address, and a name
    that is denied has none."""
    assert "reached h2.wild.test at " + H2 in r.out, r
    assert "hidden.test has no such address" in r.out, r
    assert lab.record(kind="dns", name="hidden.test")["verdict"] == "deny"


def answered(r):
    return "answer b" in r.out and "\\x16" in r.out


CASES = [
    Case("denied-sni", curl("-k", "--resolve", "evil.test:443:" + ADDRESS,
                            "https://evil.test/"), reached, alert),
    Case("W17-no-sni", trick("sniless", ADDRESS), answered, ended,
         logged=False),
    Case("address-instead-of-name", curl("-k", "https://203.0.113.66/"),
         reached, lambda lab, r: never(r)),
    Case("denied-sni-split", trick("split", ADDRESS, "evil.test"), reached,
         ended),
    Case("denied-sni-in-records", trick("records", ADDRESS, "evil.test"),
         reached, ended),
    Case("B14-host-inside-tls",
         curl("-H", "Host: hidden.test", "--resolve",
              "allowed.test:443:203.0.113.11", "https://allowed.test/"),
         lambda r: "reached hidden.test at 203.0.113.11" in r.out,
         at_its_own),
    Case("B15-another-name-on-one-connection",
         trick("share", H2, "h2.wild.test", "hidden.test"),
         lambda r: "reached hidden.test at " + H2 in r.out, one_name),
]


def never(r):
    assert not reached(r), r


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_b15_who_does_not_ask_is_seen_as_the_name_it_showed(gate):
    """What SECURITY.md tells: a request inside is not seen.  The record says
    that the connection can carry other names', and its own name's rule is
    what opened it."""
    lab = gate.lab
    r = trick("ride", H2, "h2.wild.test", "hidden.test")(lab)
    assert "reached hidden.test at " + H2 in r.out, r
    d = lab.record(kind="decision", name="h2.wild.test")
    assert d["alpn"] == "h2" and d["verdict"] == "allow", d
    assert not lab.records(name="hidden.test", verdict="allow")
    # by itself it is refused
    r = trick("plain", H2, "hidden.test")(lab)
    ended(lab, r)
    assert lab.record(kind="decision", name="hidden.test")["verdict"] == "deny"


def test_w19_hello_in_segments_and_records(gate):
    for way in ("plain", "split", "records"):
        r = trick(way, ADDRESS, "allowed.test")(gate.lab)
        assert "reached allowed.test" in r.out, (way, r)


def test_several_names_in_one_hello(gate):
    for names in (("allowed.test", "evil.test"), ("evil.test",
                                                  "allowed.test")):
        r = trick("two", ADDRESS, *names)(gate.lab)
        ended(gate.lab, r)
        assert not answered(r), r
        # for that, and not because one of them is denied
        d = gate.lab.record(kind="decision", reason="hello_names")
        assert d["verdict"] == "deny", d
    assert len(gate.lab.records(reason="hello_names", kind="decision")) == 2


def test_b008_neither_tls_nor_http(gate):
    r = trick("garbage", "203.0.113.66")(gate.lab)
    ended(gate.lab, r)
    assert r.seconds < 7, r


def test_a_client_that_says_nothing_is_ended_in_time(gate):
    r = trick("silent", ADDRESS)(gate.lab)
    ended(gate.lab, r)
    assert r.seconds < 8, r


def test_openssl_s_client(gate):
    lab = gate.lab
    ask = ("openssl", "s_client", "-connect", ADDRESS + ":443", "-CAfile",
           lab.ca, "-quiet", "-servername")
    get = "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n"
    r = lab.agent(*ask, "allowed.test", "-ign_eof", stdin=get)
    assert "reached allowed.test" in r.out, r
    r = lab.agent(*ask, "evil.test", stdin=get)
    assert "alert access denied" in r.err, r


def test_the_server_is_the_real_one(gate):
    """No interception: the client sees the server's own certificate."""
    lab = gate.lab
    r = lab.agent("openssl", "s_client", "-connect", ADDRESS + ":443",
                  "-servername", "allowed.test", "-CAfile", lab.ca,
                  "-verify_return_error")
    assert "Verify return code: 0" in r.out, r
