# SPDX-License-Identifier: Apache-2.0
"""An address that a prefix rule opens, and a name at it that a rule denies:
what stands in front of the name must not hide it."""
from cases import GET, TCP, Case, check_pair, program
from lab import POLICY

ADDRESS = "203.0.113.15"
SETTINGS = {"policy": POLICY.replace(
    "  rule:\n",
    "  rule:\n    - {verdict: allow, cidr: %s/32, ports: "
    "[80, 5432, 8080-8082, 8443]}\n" % ADDRESS, 1) +
    "    - {verdict: deny, hostname: evil.test}\n"}

# Bytes, and a ClientHello behind them, or behind one byte of the server.
HELLO = """
import socket, ssl, sys
address, port, first, how, name = sys.argv[1:6]
first = first.encode().decode("unicode_escape").encode("latin-1")
context = ssl._create_unverified_context()
inb, out = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(inb, out, server_hostname=name)

def step(what):
    while True:
        try:
            return what()
        except ssl.SSLWantReadError:
            s.sendall(out.read())
            data = s.recv(65536)
            if not data:
                raise EOFError("the peer closed")
            inb.write(data)

try:
    s = socket.create_connection((address, int(port)), 5)
    if how == "wait":
        s.sendall(first)
        s.recv(1)
    elif how == "at-once":
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            s.sendall(first + out.read())
        s.recv(1)
    else:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            s.sendall(first + out.read())
    step(tls.do_handshake)
    print(step(lambda: tls.read(100)).decode())
except (OSError, EOFError) as e:
    print("error", type(e).__name__, e)
"""


def evil(r):
    return "reached evil.test" in r.out


def refused(reason):
    def closed(lab, r):
        assert not evil(r), r
        d = lab.record(kind="decision", verdict="deny", reason=reason)
        assert d["original"].startswith(ADDRESS), d
    return closed


def raw(port, data):
    return program(TCP, ADDRESS, str(port), data, "")


def tls(port, first, how, name="evil.test"):
    return program(HELLO, ADDRESS, str(port), first, how, name)


EVIL = GET % "evil.test"
OLD = "Host: evil.test\\r\\n\\r\\n"
PROXY_1 = "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\\r\\n"
PROXY_2 = "\\r\\n\\r\\n\\0\\r\\nQUIT\\n\\x21\\x11\\0\\x0c" \
    "\\xc0\\0\\2\\1\\xc0\\0\\2\\2\\0\\1\\0\\2"
ASK = "\\0\\0\\0\\x08\\x04\\xd2\\x16\\x2f"
KEPT = "GET / HTTP/1.1\\r\\nHost: other.test:8082\\r\\n\\r\\n"

CASES = [
    Case("empty-lines", raw(8082, "\\r\\n\\r\\n" + EVIL), evil,
         refused("protocol")),
    Case("long-method", raw(8082, "Z" * 50 + EVIL), evil,
         refused("protocol")),
    Case("no-version", raw(8080, "GET /\\r\\n" + OLD), evil,
         refused("protocol")),
    Case("no-version-on-a-named-port", raw(80, "GET /\\r\\n" + OLD), evil,
         refused("head_malformed")),
    Case("tabs", raw(8080, "GET\\t/\\tHTTP/1.0\\r\\n" + OLD), evil,
         refused("protocol")),
    Case("tabs-on-a-named-port",
         raw(80, "GET\\t/\\tHTTP/1.0\\r\\n" + OLD), evil,
         refused("not_tls")),
    Case("proxy-header", raw(8081, PROXY_1 + EVIL), evil,
         refused("protocol")),
    Case("proxy-header-2", raw(8081, PROXY_2 + EVIL), evil,
         refused("protocol")),
    Case("second-request", raw(8082, KEPT + EVIL), evil,
         refused("rule_deny")),
    Case("alert-first", tls(8443, "\\x15\\x03\\1\\0\\2\\1\\x5a", ""), evil,
         refused("protocol")),
    Case("starttls", tls(5432, ASK, "wait"), evil, refused("other_name")),
    Case("starttls-at-once", tls(5432, ASK, "at-once"), evil,
         refused("other_name")),
]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


def test_what_the_rule_opens_passes(gate):
    """The same without a name that is denied."""
    for r in (tls(5432, ASK, "wait", "outer.test")(gate.lab),
              tls(5432, ASK, "at-once", "outer.test")(gate.lab),
              tls(8443, "", "", "outer.test")(gate.lab),
              raw(8082, GET % "outer.test:8082")(gate.lab)):
        assert "reached outer.test" in r.out, r
