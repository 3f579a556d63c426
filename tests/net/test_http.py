# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP on the transparent path: every request is judged."""
import json
import os
import re

import pytest

from cases import GET, TCP, Case, check_pair, curl, program, reached

ADDRESS = "203.0.113.10"


def head(*lines):
    return "\\r\\n".join(lines) + "\\r\\n\\r\\n"


def keep(host):
    return "GET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % host


def no_evil(lab, r):
    assert "reached evil.test" not in r.out, r
    assert " 403 " in r.out or " 400 " in r.out, r


def evil(r):
    return "reached evil.test" in r.out


def send(data, port="80", address=ADDRESS):
    return program(TCP, address, port, data, "")


CASES = [
    Case("denied-host", curl("--resolve", "evil.test:80:" + ADDRESS,
                             "http://evil.test/"), reached,
         lambda lab, r: words(r)),
    Case("W20-second-request", send(keep("allowed.test") + GET %
                                    "evil.test"), evil, no_evil),
    Case("W20-absolute-form",
         send(head("GET http://evil.test/ HTTP/1.1", "Host: allowed.test",
                   "Connection: close")), evil, no_evil),
    Case("B37-http-like-https", send(GET % "evil.test"), evil, no_evil),
    Case("http10-host", send(head("GET / HTTP/1.0", "Host: evil.test")),
         evil, no_evil),
    # the credential of the proxy, and the proxy's own field
    Case("W29-proxy-fields-stay-here",
         send(head("GET /auth HTTP/1.1", "Host: allowed.test",
                   "Proxy-Authorization: Basic c2VjcmV0",
                   "Connection: close")),
         lambda r: "auth Basic c2VjcmV0" in r.out,
         lambda lab, r: stays_here(r), logged=False),
    Case("hidden-request-in-body",
         send(head("POST / HTTP/1.1", "Host: allowed.test",
                   "Content-Length: 0") + GET % "evil.test"), evil, no_evil),
]


def stays_here(r):
    assert "reached 1.1 penstock auth \n" in r.out, r


def words(r):
    """What an agent can read of a refusal."""
    assert not reached(r), r
    assert "no_rule" in r.out and "evil.test" in r.out, r
    assert "form FW-1" in r.out, r


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


BAD = {
    "two-hosts": head("GET / HTTP/1.1", "Host: allowed.test",
                      "Host: evil.test"),
    "length-and-chunked": head("POST / HTTP/1.1", "Host: allowed.test",
                               "Content-Length: 5",
                               "Transfer-Encoding: chunked") +
    "0\\r\\n\\r\\n",
    "two-lengths": head("POST / HTTP/1.1", "Host: allowed.test",
                        "Content-Length: 5", "Content-Length: 6"),
    # both are allowed, and the server would answer
    "absolute-form-of-another": head("GET http://allowed.test/ HTTP/1.1",
                                     "Host: other.test"),
    "obs-fold": head("GET / HTTP/1.1", "Host: allowed.test", "X: a", " b"),
    "space-before-colon": head("GET / HTTP/1.1", "Host : allowed.test"),
    "no-host": head("GET / HTTP/1.1"),
    "nul": head("GET / HTTP/1.1", "Host: allowed.test\\x00.evil.test"),
    "bare-lf": "GET / HTTP/1.1\\nHost: allowed.test\\n\\n",
    "chunk-size": head("POST / HTTP/1.1", "Host: allowed.test",
                       "Transfer-Encoding: chunked") + "0x5\\r\\nhello",
    "trace": head("TRACE / HTTP/1.1", "Host: allowed.test"),
    "h2-preface": "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_ambiguous_requests_do_not_go_up(gate, what):
    r = send(BAD[what])(gate.lab)
    assert not reached(r), r
    assert "HTTP/1.1 4" in r.out or "HTTP/1.1 5" in r.out or \
        "error Connection" in r.out, r


def test_refusal_in_json_and_proxy_status(gate):
    r = gate.lab.agent("curl", "-sS", "-i", "-H", "Accept: application/json",
                       "--resolve", "evil.test:80:" + ADDRESS,
                       "http://evil.test/")
    top, _, body = r.out.partition("\n\n")
    assert "HTTP/1.1 403" in top and "proxy-status:" in top.lower(), r
    assert json.loads(body)["reason"] == "no_rule", r


def test_kept_alive_requests_to_one_name(gate):
    r = gate.lab.agent("curl", "-sS", "-v", "http://allowed.test/",
                       "http://allowed.test/", "http://allowed.test/")
    assert r.out.count("reached allowed.test") == 3, r
    assert r.err.count("Connected to") == 1, r


def test_pipelined_requests_in_order(gate):
    r = send(keep("allowed.test") + keep("other.test") + GET %
             "allowed.test")(gate.lab)
    got = [line.split()[1] for line in r.out.splitlines()
           if line.startswith("reached")]
    assert got == ["allowed.test", "other.test", "allowed.test"], r


def test_head_and_upload_and_chunked_upload(gate):
    lab = gate.lab
    r = lab.agent("curl", "-sSI", "http://allowed.test/object")
    assert "200" in r.out and "300000" in r.out, r
    put = ("curl", "-sS", "-m", "20", "-T", lab.dir + "/www/object")
    r = lab.agent(*put, "http://allowed.test/upload/x")
    assert "took 300000" in r.out, r
    r = lab.agent(*put, "-H", "Transfer-Encoding: chunked",
                  "http://allowed.test/upload/x")
    assert "took" in r.out, r


def test_expect_100_continue(gate):
    lab = gate.lab
    r = lab.agent("curl", "-sS", "-m", "10", "-H", "Expect: 100-continue",
                  "--data-binary", "@" + lab.dir + "/www/object",
                  "http://allowed.test/upload/x")
    assert "took 300000" in r.out and r.seconds < 5, r


def test_n04_n10_a_refused_upload_still_reads_the_reason(gate):
    """The answer is not lost while the client still sends."""
    lab = gate.lab
    r = lab.agent("curl", "-sS", "-m", "10", "-H", "Expect:", "--data-binary",
                  "@" + lab.dir + "/www/object", "--resolve",
                  "evil.test:80:" + ADDRESS, "http://evil.test/upload")
    assert "no_rule" in r.out, r


UPLOAD = """
import sys, urllib.error, urllib.request
for _ in range(int(sys.argv[2])):
    r = urllib.request.Request(sys.argv[1], bytes(8 << 20),
                               {"Host": "evil.test"})
    try:
        print("open", urllib.request.urlopen(r, timeout=10).status)
    except urllib.error.HTTPError as e:
        print("told", e.code, e.read().decode().strip())
    except Exception as e:
        print("lost", repr(e))
"""

NODE_HTTP = """
const http = require("http"), body = Buffer.alloc(8 << 20);
const go = n => n && http.request(process.argv[1], {method: "POST",
    agent: false, headers: {Host: "evil.test"}}, r => {
        let s = "";
        r.on("data", d => s += d);
        r.on("end", () => { console.log("told", r.statusCode, s.trim());
            go(n - 1); });
    }).on("error", e => { console.log("lost", e.code); go(n - 1); })
    .end(body);
go(+process.argv[2]);
"""

NODE_FETCH = """
(async () => {
    for (let n = +process.argv[2]; n > 0; n--)
        try {
            const r = await fetch(process.argv[1], {method: "POST",
                headers: {host: "evil.test"}, body: Buffer.alloc(8 << 20)});
            console.log("told", r.status, (await r.text()).trim());
        } catch (e) {
            console.log("lost", e.cause ? e.cause.code : e);
        }
})();
"""

UPLOADS = {"urllib": ("/usr/bin/python3", "-c", UPLOAD)}
if os.path.exists("/usr/bin/node"):
    UPLOADS["node-http"] = ("/usr/bin/node", "-e", NODE_HTTP)
    UPLOADS["node-fetch"] = ("/usr/bin/node", "-e", NODE_FETCH)


@pytest.mark.parametrize("what", sorted(UPLOADS))
def test_n04_who_sends_8_mb_reads_the_refusal_too(gate, what):
    """Clients that read no answer before all of theirs is sent."""
    r = gate.lab.agent(*UPLOADS[what], "http://203.0.113.66/upload/x", "10",
                       timeout=60)
    # fetch sends the Host of its address
    told = re.findall(r"^told 403 .*(?:no_rule|address_literal)", r.out, re.M)
    assert len(told) == 10 and not r.out.count("lost"), r


FAULTS = {"/reset": "502", "/empty": "502", "/both": "502"}


@pytest.mark.parametrize("path", sorted(FAULTS))
def test_an_origin_that_fails(gate, path):
    r = gate.lab.agent("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}",
                       "http://fault.test" + path)
    assert r.out == FAULTS[path], r


def test_a_short_answer_is_not_made_whole(gate):
    r = gate.lab.agent("curl", "-sS", "-m", "6", "http://fault.test/short")
    assert r.status in (18, 56), r
