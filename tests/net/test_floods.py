# SPDX-License-Identifier: Apache-2.0
"""A client that is refused over and over: the ledger stays small, and every
refusal is counted, in records and metrics."""
import subprocess

import pytest

from lab import PYTHON
from test_limits import denied

FLOOD = 700
DISTINCT = 128      # records of a cell and reason in a window of 10 s

# So many clients in a row; each reads to the end: "refused N".
ASK = """
import socket, sys
host, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ask, refused = sys.argv[4].replace("|", chr(13) + chr(10)), 0
for i in range(n):
    s = socket.create_connection((host, port), 5)
    s.settimeout(5)
    data = b""
    try:
        s.sendall(ask.replace("%d", str(i)).encode())
        while True:
            d = s.recv(4096)
            if not d:
                break
            data += d
    except ConnectionResetError:
        pass
    refused += b"reached" not in data and b" 403 " in data
    s.close()
print("refused", refused)
"""
REQUEST = "GET http://n%d.evil.test/ HTTP/1.1|Host: n%d.evil.test||"
DIRECT = "GET / HTTP/1.1|Host: n%d.evil.test||"


@pytest.mark.parametrize("way", ["asked", "direct"])
def test_refusals_that_differ(lab, way):
    lab.up("gateway")
    host, port, ask = ("198.18.0.1", 15080, REQUEST) if way == "asked" else \
        ("203.0.113.10", 80, DIRECT)
    p = lab.start(lab.agent_space, *lab.AS_AGENT, PYTHON, "-c", ASK, host,
                  str(port), str(FLOOD), ask, stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline().split() == [b"refused", b"%d" % FLOOD]
    finally:
        lab.stop(p)
    assert denied(lab, "no_rule") == FLOOD
    lab.wait(lambda: counted(lab) == FLOOD, 15, "the rest")
    told = lab.records(kind="decision", reason="no_rule")
    whole = [r for r in told if "count" not in r]
    rest = [r for r in told if "count" in r]
    # within two windows at most
    assert DISTINCT <= len(whole) <= 2 * DISTINCT and len(rest) <= 2, told
    ends = lab.records(kind="end", verdict="deny")
    assert {r["connection"] for r in ends} == {r["connection"] for r in whole}
    for r in rest:
        assert "name" not in r and "connection" not in r, r
        assert r["cell"] == "agent-1" and r["verdict"] == "deny", r
        assert r["client"].startswith("198.18.0.2:"), r


def counted(lab):
    return sum(r.get("count", 1) for r in
               lab.records(kind="decision", reason="no_rule"))
