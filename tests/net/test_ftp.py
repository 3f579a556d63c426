# SPDX-License-Identifier: Apache-2.0
"""A protocol whose second connection goes where its first one says."""
import pytest

from cases import reached
from lab import HERE, NAMES, POLICY

SERVER = HERE + "/ftpserver.py"
FTP = "203.0.113.14"
FOREIGN = "203.0.113.66"

LIST = """
import ftplib, sys, time
f = ftplib.FTP(timeout=6)
f.trust_server_pasv_ipv4_address = True
f.set_pasv(True)
f.connect("ftp.wild.test")
f.login()
print("in")
if sys.argv[1] == "extended":
    f.af = 10       # ask by EPSV
else:
    f.cwd(sys.argv[1])
began = time.monotonic()
try:
    print(*f.nlst())
except (OSError, ftplib.Error, EOFError) as e:
    print("error", type(e).__name__, "soon" if time.monotonic() - began < 2
          else "late")
"""


@pytest.fixture(scope="module")
def server(lab):
    p = lab.start("world", "/usr/bin/python3", SERVER, FTP, FOREIGN,
                  lab.dir + "/ftp.seen", stdout=-1)
    assert p.stdout.readline() == b"ready\n"
    lab.names({**NAMES, "ftp.wild.test": [FTP]})
    yield lab
    lab.stop(p)
    lab.names(NAMES)


def rule(ports):
    return POLICY + "    - {verdict: allow, hostname: ftp.wild.test, " \
        "ports: [%s], protocol: tcp}\n" % ports


def data(lab):
    """Who came for data, by the server's own log."""
    with open(lab.dir + "/ftp.seen") as f:
        return f.read().split()


@pytest.mark.parametrize("mode", ["gateway", "shared"])
def test_n22_what_a_server_announces_opens_nothing(server, mode):
    lab = server
    ways = ("own", "extended", "foreign")
    lab.unguarded(mode)
    for way in ways:
        r = lab.python(LIST, way)
        assert r.out == "in\nreached by %s\n" % way, r
        assert data(lab)[-1] == way
    count = len(data(lab))
    lab.up(mode, policy=rule("21"))
    try:
        for way in ways:
            r = lab.python(LIST, way)
            assert r.out.startswith("in\nerror ") and "soon" in r.out, r
        assert not reached(r) and len(data(lab)) == count
        # which rule would open it: the name's, at that port
        d = lab.record(kind="decision", name="ftp.wild.test", verdict="deny",
                       name_from="pin")
        assert d["original"] == FTP + ":40001" and d["reason"] == "no_rule", d
    finally:
        lab.down()
    lab.up(mode, policy=rule("21, 40000-40010"))
    try:
        for way in ways[:2]:
            r = lab.python(LIST, way)
            assert r.out == "in\nreached by %s\n" % way, r
        count = len(data(lab))
        r = lab.python(LIST, "foreign")
        assert r.out.startswith("in\nerror ") and "soon" in r.out, r
        assert len(data(lab)) == count
    finally:
        lab.down()
