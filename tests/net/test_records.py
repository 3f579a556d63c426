# SPDX-License-Identifier: Apache-2.0
"""What is written of what happened."""
import json

from cases import GET, TCP, Case, check_pair, curl, program, reached

ADDRESS = "203.0.113.10"


def denial(lab, r):
    d = lab.record(kind="decision", name="denied.test")
    assert d["verdict"] == "deny" and d["reason"] == "rule_deny", d
    assert d["rule"] == "no-denied", d
    assert d["rule_reason"] == "use the artifact store", d


def each_request(lab, r):
    deny = lab.record(kind="decision", name="evil.test", verdict="deny",
                      name_from="host")
    allow = lab.record(kind="decision", name="allowed.test",
                       connection=deny["connection"])
    assert allow["request"] == 1 and deny["request"] == 2
    assert "dialled" not in allow and "candidate" not in deny, (allow, deny)
    end = lab.record(kind="end", connection=deny["connection"], request=1)
    assert end["name"] == "allowed.test" and end["verdict"] == "allow", end
    assert end["dialled"] == ADDRESS + ":80" and end["bytes_up"] > 40, end
    end = lab.record(kind="end", connection=deny["connection"], request=2)
    assert end["name"] == "evil.test" and end["verdict"] == "deny", end
    assert end["bytes_up"] == 0 and "dialled" not in end, end


def question(lab, r):
    d = lab.record(kind="dns", name="evil.test")
    assert d["verdict"] == "deny" and d["reason"] == "no_rule", d


CASES = [
    Case("a-denial-names-its-rule",
         curl("-k", "--resolve", "denied.test:443:203.0.113.11",
              "https://denied.test/"), reached, denial),
    Case("every-request-of-a-connection", program(
        TCP, ADDRESS, "80", "GET /?one HTTP/1.1\\r\\n"
        "Host: allowed.test\\r\\n\\r\\n" + GET % "evil.test", ""),
        lambda r: "reached evil.test" in r.out, each_request),
    Case("questions", curl("http://evil.test/"), reached, question),
]


def test_written_of_what_leaks_without(gate, case):
    check_pair(gate, case)


def test_an_allowed_connection_has_a_decision_and_an_end(gate):
    lab = gate.lab
    r = lab.agent("curl", "-sS", "https://allowed.test/object", "-o",
                  "/dev/null")
    assert r.status == 0, r
    d = lab.record(kind="decision", name="allowed.test", verdict="allow",
                   name_from="sni")
    assert d["cell"] == "agent-1" and d["labels"] == {"team": "lab"}, d
    assert d["name_from"] == "sni" and d["reason"] == "rule", d
    assert d["original"] == ADDRESS + ":443", d
    assert d["candidate"] == ADDRESS + ":443" and "dialled" not in d, d
    assert d["rule_at"].endswith("policy.yaml:10"), d
    assert d["rule"] and d["ja4"] and d["digest"] and d["generation"] >= 1, d
    assert d["client"].split(":")[0] in ("198.18.0.2", "198.18.3.2",
                                         "127.0.0.1"), d
    e = lab.record(kind="end", connection=d["connection"])
    assert e["bytes_down"] > 300000 and e["bytes_up"] > 300, e
    assert e["how"] in ("fin", "reset_client") and e["duration_us"] > 0, e
    assert e["dialled"] == ADDRESS + ":443", e


def test_an_end_tells_of_the_addresses_that_were_tried(gate):
    """The first that is dialled gives no answer."""
    lab = gate.lab
    for _ in range(6):      # addresses come in any order
        assert lab.agent("curl", "-sS", "-m", "12", "-x", "http://%s:15080" %
                         lab.proxy_address, "http://down.test/").status == 0
    ends = [e for e in lab.records(kind="end") if e["name"] == "down.test"]
    assert ends and all(e["dialled"] == ADDRESS + ":80" for e in ends), ends
    tried = [e["tried"] for e in ends if "tried" in e]
    assert tried, ends
    for t in tried:
        assert len(t) == 1 and t[0]["address"] == "203.0.113.99:80", t
        assert t[0].get("reason") in (None, "unreachable"), t


def test_w27_outside_bytes_are_escaped(gate):
    lab = gate.lab
    lab.python(TCP, ADDRESS, "80", "GET /\\x1b[31m HTTP/1.1\\r\\n"
               "Host: ev\\x0ail.test\\r\\n\\r\\n", "")
    lab.python(TCP, ADDRESS, "80", GET % "a\\xff\\xfeb.test", "")
    with open(lab.records_path, "rb") as f:
        data = f.read()
    for line in data.splitlines():
        if line.startswith(b"{"):
            json.loads(line)
    assert b"\x1b" not in data and b"\xff" not in data
    with open(lab.log_path, "rb") as f:
        assert b"\x1b" not in f.read()


def test_sequence_numbers_have_no_gap(gate):
    seq = [r["seq"] for r in gate.lab.records()]
    assert seq == list(range(seq[0], seq[0] + len(seq)))
