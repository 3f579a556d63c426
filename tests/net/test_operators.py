# SPDX-License-Identifier: Apache-2.0
"""What operators see of DNS is what the world's server and the agents saw."""
import json
import os
import re
import time

import pytest

from cases import ASK, SINKHOLE

RESOLVER = "203.0.113.53"


@pytest.fixture
def up(lab):
    lab.up("gateway")
    yield lab
    lab.down()


def ask(lab, name, qtype=1):
    return lab.python(ASK, RESOLVER, name, str(qtype), "udp").out


def verb(lab, *argv):
    return lab.verb(*argv, "-c", lab.conf)


def pins(lab, *argv):
    r = verb(lab, "pins", "--json", *argv)
    assert r.status == 0, r
    return [json.loads(line) for line in r.out.splitlines()]


def metrics(lab):
    status, body = lab.get("/metrics")
    assert status == 200
    return {k: float(v) for k, v in
            re.findall(r"^(penstock_[^ ]*) (\S+)$", body, re.M)}


def test_pins_are_what_was_looked_up(up):
    lab = up
    assert pins(lab) == []
    assert "address 203.0.113.10" in ask(lab, "git.test")
    assert "203.0.113.99" in ask(lab, "down.test")
    assert SINKHOLE in ask(lab, "nowhere.test")
    found = pins(lab)
    assert sorted((p["cell"], p["name"], p["address"]) for p in found) == [
        ("agent-1", "down.test", "203.0.113.10"),
        ("agent-1", "down.test", "203.0.113.99"),
        ("agent-1", "git.test", "203.0.113.10")]
    for p in found:     # a minute, and five of grace
        assert p["live"] and 300000 < p["left_ms"] <= 360000, p
    assert len(pins(lab, "--name", "GIT.test", "--cell", "agent-1")) == 1
    r = verb(lab, "pins", "--cell", "agent-2")
    assert r.status == 69 and "no such cell" in r.err, r
    text = verb(lab, "pins", "--name", "git.test").out
    assert re.search(r"^agent-1 +git.test +203.0.113.10 +3\d\d s$", text), text


def test_a_flushed_name_is_asked_again_and_stays_pinned(up):
    lab = up
    for name in ("git.test", "pkg.test"):
        ask(lab, name)
    before = lab.asked("git.test"), lab.asked("pkg.test")
    ask(lab, "git.test")
    assert lab.asked("git.test") == before[0]
    r = verb(lab, "cache", "flush", "git.test")
    assert r.status == 0 and r.out == "1 answers flushed\n", r
    assert [p["name"] for p in pins(lab, "--name", "git.test")]
    ask(lab, "git.test")
    ask(lab, "pkg.test")
    assert (lab.asked("git.test"), lab.asked("pkg.test")) == \
        (before[0] + 1, before[1])
    r = verb(lab, "cache", "flush", "--json")
    assert json.loads(r.out) == {"flushed": 2}, r
    ask(lab, "pkg.test")
    assert lab.asked("pkg.test") == before[1] + 1
    assert verb(lab, "cache", "flush", "a..b").status == 2
    assert verb(lab, "cache", "clear").status == 2


def test_who_may(up):
    """Another user has nothing of it, even where he may open the socket."""
    lab = up
    ask(lab, "git.test")
    os.chmod(lab.admin, 0o666)
    for what in (("pins",), ("cache", "flush")):
        mine = verb(lab, *what)
        assert mine.status == 0, mine
        r = lab.run(lab.space, "setpriv", "--reuid", "12345", "--regid",
                    "12345", "--clear-groups", lab.binary, *what,
                    "--admin", "unix:" + lab.admin)
        assert r.status == 77 and "only root" in r.err, r
        assert "git.test" not in r.out
    ask(lab, "git.test")
    r = lab.run(lab.space, "setpriv", "--reuid", "12345", "--regid", "12345",
                "--clear-groups", lab.binary, "status", "dns", "--admin",
                "unix:" + lab.admin)
    assert r.status == 0 and "agent-1" not in r.out, r
    assert "agent-1" in verb(lab, "status", "dns").out


def test_status_and_metrics_say_what_happened(up):
    lab = up
    asked = [lab.asked(n) for n in ("git.test", "broken.test", "silent.test")]
    ask(lab, "git.test")
    ask(lab, "git.test")
    ask(lab, "git.test", 16)
    ask(lab, "broken.test")
    ask(lab, "nowhere.test", 99)
    tries = sum(lab.asked(n) for n in ("git.test", "broken.test",
                                       "silent.test")) - sum(asked)
    time.sleep(1.2)
    m = metrics(lab)
    assert m['penstock_dns_questions_total{type="A"}'] == 3
    assert m['penstock_dns_questions_total{type="TXT"}'] == 1
    assert m['penstock_dns_questions_total{type="other"}'] == 1
    told = {k: v for k, v in m.items() if "dns_answers_total" in k and v}
    assert sum(told.values()) == 5, told
    assert told['penstock_dns_answers_total{rcode="NOERROR",'
                'verdict="allow"}'] == 2
    assert told['penstock_dns_answers_total{rcode="SERVFAIL",'
                'verdict="allow"}'] == 1
    assert m["penstock_dns_upstream_total"] == 2
    assert m["penstock_dns_cache_hits_total"] == 1
    assert m["penstock_dns_cache_misses_total"] == 2
    who = '{resolver="%s:53",zone=""' % RESOLVER
    assert m["penstock_dns_upstream_tries_total%s}" % who] == tries
    assert m['penstock_dns_upstream_failures_total%s,kind="failure"}' %
             who] == lab.asked("broken.test") - asked[1]
    assert m["penstock_dns_upstream_duration_seconds_count%s}" % who] == 1
    assert m["penstock_dns_pins"] == 1
    status = json.loads(verb(lab, "status", "dns", "--json").out)
    server, = status["servers"]
    assert server["resolver"] == RESOLVER + ":53" and not server["tls"]
    assert server["tries"] == tries and status["asked"] == 2
    assert status["pins"]["cells"] == [
        {"cell": "agent-1", "used": 1, "own": 50000, "most": 100000}]
    text = verb(lab, "status", "dns").out
    assert "1 hits, 2 misses" in text and "1 of 100000 places" in text, text


def test_a_resolver_that_comes_back_is_spoken_to(up):
    lab = up
    pid = next(r["pid"] for r in json.loads(lab.get("/status")[1])["roles"]
               if r["role"] == "resolver")
    ask(lab, "git.test")
    os.kill(pid, 9)
    lab.wait(lambda: "address" in ask(lab, "git.test"), 10, "resolver")
    lab.wait(lambda: pins(lab) != [], 5, "pins")
    r = verb(lab, "cache", "flush")
    assert r.status == 0 and r.out == "1 answers flushed\n", r
