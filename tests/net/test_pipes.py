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
UID = 1000000 + os.getpid()

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
    assert uid == str(UID)
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
    """Those of a process at rest.  One that is too small is looked at and
    closed, so that what is seen in between tells nothing."""
    held = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        with contextlib.suppress(OSError):
            held.add(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
    return sum(what.startswith("pipe:") for what in held)


def move(lab, *args):
    """A transfer, and how many more pipes the engine has after it: it keeps
    those of one flow for the next."""
    engine = pids(lab, "engine")[0]
    before, ended = pipes(engine), len(lab.records(kind="end"))
    r = lab.agent("curl", "-sS", "-m", "30", "--resolve",
                  "allowed.test:443:203.0.113.10", *args, timeout=40)
    assert r.status == 0, r
    lab.wait(lambda: len(lab.records(kind="end")) > ended, 5, "its end")
    return r.out, pipes(engine) - before


@pytest.fixture(params=["gateway", "shared"])
def big(request, lab):
    path = lab.dir + "/www/big"
    block = hashlib.sha512(b"big").digest() * 1024
    with open(path, "wb") as f:
        for n in range(SIZE // len(block)):
            f.write(n.to_bytes(8, "big") + block[8:])
    os.chmod(path, 0o644)
    # Every other engine of this machine has pages of the usual uid, and gives
    # them back when it likes.
    lab.up(request.param, extra="users: {engine: %d}\n" % UID)
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
    assert "took %d" % SIZE in got
    return n_down + n_up


def test_bulk_goes_by_pipes(big):
    assert down_and_up(big) > 0


def test_without_pages_it_is_copied(big):
    with all_pages_of(pids(big, "engine")[0]):
        assert down_and_up(big) == 0
