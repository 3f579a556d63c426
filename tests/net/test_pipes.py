# SPDX-License-Identifier: Apache-2.0
"""The pages that a uid may hold in pipes are shared with whatever else runs
under it.  Where another process has them all, bytes are copied."""
import contextlib
import hashlib
import os
import subprocess

import pytest

from lab import PYTHON
from test_life import pids

SIZE = 24 << 20

# As much as the uid gets, in the largest pipes and then in any.
HOLD = """
import fcntl, os, resource, sys
uid, gid = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
n, size = 0, 1 << 16
while size >= 1 << 16:
    r, w = os.pipe()
    n += 1
    try:
        fcntl.fcntl(w, 1031, 1 << 20)
    except PermissionError:
        pass
    size = fcntl.fcntl(w, 1032)
print("held", n, size, flush=True)
sys.stdin.read()
"""


def ids(pid):
    with open("/proc/%d/status" % pid) as f:
        own = dict(line.split(":", 1) for line in f)
    return own["Uid"].split()[0], own["Gid"].split()[0]


@contextlib.contextmanager
def all_pages_of(pid):
    uid, gid = ids(pid)
    assert uid != "0"
    p = subprocess.Popen([PYTHON, "-c", HOLD, uid, gid], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        words = p.stdout.readline().split()
        assert words[:1] == ["held"] and int(words[2]) < 1 << 16, words
        yield
    finally:
        p.stdin.close()
        p.wait(10)
        p.stdout.close()


def pipes(pid):
    n = 0
    for fd in os.listdir("/proc/%d/fd" % pid):
        with contextlib.suppress(OSError):
            n += os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("pipe:")
    return n


def move(lab, *args):
    """A transfer, and how many more pipes the engine had meanwhile, at most:
    it keeps some for the next flow."""
    engine = pids(lab, "engine")[0]
    before = most = pipes(engine)
    p = lab.start(lab.agent_space, *lab.AS_AGENT, "env",
                  "CURL_CA_BUNDLE=" + lab.ca, "curl", "-sS", "-m", "30",
                  "--resolve", "allowed.test:443:203.0.113.10", *args,
                  stdout=subprocess.PIPE)
    while True:
        most = max(most, pipes(engine))
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.wait(0.02)
            break
    out = p.stdout.read()
    assert p.returncode == 0, (p.returncode, out[:200])
    most = max(most, pipes(engine))
    lab.stop(p)
    return out, most - before


@pytest.fixture(params=["gateway", "shared"])
def big(request, lab):
    path = lab.dir + "/www/big"
    block = hashlib.sha512(b"big").digest() * 1024
    with open(path, "wb") as f:
        for n in range(SIZE // len(block)):
            f.write(n.to_bytes(8, "big") + block[8:])
    os.chmod(path, 0o644)
    lab.up(request.param)
    yield lab
    lab.down()
    os.unlink(path)


def down_and_up(lab):
    with open(lab.dir + "/www/big", "rb") as f:
        whole = f.read()
    to = os.path.join(lab.agent_env()["HOME"], "got")
    _, n_down = move(lab, "--limit-rate", "16M", "-o", to,
                     "https://allowed.test/big")
    with open(to, "rb") as f:
        assert f.read() == whole
    got, n_up = move(lab, "-T", lab.dir + "/www/big",
                     "https://allowed.test/upload/x")
    assert b"took %d" % SIZE in got
    return n_down + n_up


def test_bulk_goes_by_pipes(big):
    assert down_and_up(big) > 0


def test_without_pages_it_is_copied(big):
    with all_pages_of(pids(big, "engine")[0]):
        assert down_and_up(big) == 0
