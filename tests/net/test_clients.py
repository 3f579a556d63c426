# SPDX-License-Identifier: Apache-2.0
"""Real clients, transparent and with proxy variables: what works for an
allowed name, what they print on a refusal."""
import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile

import pytest

from cases import reached

ADDRESS = "203.0.113.10"
WAYS = ["transparent", "cooperative"]


def env(lab, way):
    return lab.proxy_env() if way == "cooperative" else {}


@pytest.fixture(scope="module", autouse=True)
def packages(lab):
    """Small registries for apt, npm and pip below the web server's root."""
    www = os.path.join(lab.dir, "www")
    wheel(os.path.join(www, "simple", "lab-demo"))
    npm(os.path.join(www, "npm"))
    deb(lab, os.path.join(www, "apt"))


def wheel(d):
    os.makedirs(d)
    name = "lab_demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(d, name), "w") as z:
        z.writestr("lab_demo.py", "WORD = 'installed'\n")
        z.writestr("lab_demo-1.0.dist-info/METADATA",
                   "Metadata-Version: 2.1\nName: lab-demo\nVersion: 1.0\n")
        z.writestr("lab_demo-1.0.dist-info/WHEEL",
                   "Wheel-Version: 1.0\nGenerator: lab\n"
                   "Root-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("lab_demo-1.0.dist-info/RECORD",
                   "lab_demo.py,,\nlab_demo-1.0.dist-info/METADATA,,\n"
                   "lab_demo-1.0.dist-info/WHEEL,,\n"
                   "lab_demo-1.0.dist-info/RECORD,,\n")
    with open(os.path.join(d, "index.html"), "w") as f:
        f.write('<a href="%s">%s</a>' % (name, name))


def npm(d):
    os.makedirs(d)
    data = json.dumps({"name": "lab-demo", "version": "1.0.0",
                       "main": "index.js"}).encode()
    tgz = os.path.join(d, "lab-demo-1.0.0.tgz")
    with tarfile.open(tgz, "w:gz") as t:
        for name, body in (("package/package.json", data),
                           ("package/index.js", b"module.exports=1\n")):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(body), 0o644
            t.addfile(info, io.BytesIO(body))
    with open(tgz, "rb") as f:
        body = f.read()
    digest = base64.b64encode(hashlib.sha512(body).digest()).decode()
    dist = {"tarball": "https://pkg.test/npm/lab-demo-1.0.0.tgz",
            "integrity": "sha512-" + digest}
    with open(os.path.join(d, "lab-demo"), "w") as f:
        json.dump({"name": "lab-demo", "dist-tags": {"latest": "1.0.0"},
                   "versions": {"1.0.0": {"name": "lab-demo",
                                          "version": "1.0.0",
                                          "dist": dist}}}, f)


def deb(lab, d):
    tree = os.path.join(lab.dir, "deb")
    os.makedirs(tree + "/DEBIAN")
    os.makedirs(d)
    with open(tree + "/DEBIAN/control", "w") as f:
        f.write("Package: lab-demo\nVersion: 1.0\nArchitecture: all\n"
                "Maintainer: lab <lab@allowed.test>\nDescription: lab\n")
    out = d + "/lab-demo_1.0_all.deb"
    r = lab.run("world", "dpkg-deb", "--root-owner-group", "-Znone", "-b",
                tree, out)
    assert r.status == 0, r
    with open(out, "rb") as f:
        body = f.read()
    packages = ("Package: lab-demo\nVersion: 1.0\nArchitecture: all\n"
                "Maintainer: lab <lab@allowed.test>\nDescription: lab\n"
                "Filename: ./lab-demo_1.0_all.deb\nSize: %d\nSHA256: %s\n" %
                (len(body), hashlib.sha256(body).hexdigest())).encode()
    with open(d + "/Packages", "wb") as f:
        f.write(packages)
    with gzip.open(d + "/Packages.gz", "wb") as f:
        f.write(packages)
    with open(d + "/Release", "w") as f:
        f.write("Origin: lab\nDate: Tue, 01 Dec 2026 00:00:00 UTC\nSHA256:\n"
                " %s %d Packages\n" % (hashlib.sha256(packages).hexdigest(),
                                       len(packages)))


def scratch(lab, name):
    d = os.path.join(lab.dir, "home", name)
    lab.agent_env()
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    os.chown(d, 1000, 1000)
    return d


# ---- curl and wget ----

@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("args", [[], ["--http1.0"], ["--proxy-anyauth"],
                                  ["--tlsv1.2", "--tls-max",
                                                "1.2"]])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_curl(gate, way, args, scheme):
    r = gate.lab.agent("curl", "-sS", "-m", "10", *args,
                       scheme + "://allowed.test/", env=env(gate.lab, way))
    assert r.status == 0 and "reached allowed.test" in r.out, r


@pytest.mark.parametrize("way", WAYS)
def test_curl_bulk(gate, way):
    r = gate.lab.agent("curl", "-sS", "-m", "20", "-o", "/dev/null", "-w",
                       "%{size_download}", "https://allowed.test/object",
                       env=env(gate.lab, way))
    assert r.out == "300000", r


@pytest.mark.parametrize("way", WAYS)
def test_curl_http2(gate, way):
    """Inside TLS it is the server's matter; in the clear it is refused."""
    lab = gate.lab
    r = lab.agent("curl", "-sS", "--http2", "https://allowed.test/",
                  env=env(lab, way))
    assert "reached allowed.test" in r.out, r
    r = lab.agent("curl", "-sS", "--http2", "http://allowed.test/",
                  env=env(lab, way))
    assert "(upgrade, " in r.out and not reached(r), r


def test_curl_refused(gate):
    lab = gate.lab
    r = lab.agent("curl", "-sSk", "--resolve", "evil.test:443:" + ADDRESS,
                  "https://evil.test/")
    assert r.status == 35 and "access denied" in r.err, r
    r = lab.agent("curl", "-sS", "https://evil.test/",
                  env=lab.proxy_env())
    assert "CONNECT tunnel failed, response 403" in r.err, r


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_wget(gate, way, scheme):
    r = gate.lab.agent("wget", "-q", "-O", "-", "-T", "8", "-t", "1",
                       "--ca-certificate", gate.lab.ca,
                       scheme + "://allowed.test/", env=env(gate.lab, way))
    assert r.status == 0 and "reached allowed.test" in r.out, r


def test_wget_refused(gate):
    lab = gate.lab
    r = lab.agent("wget", "-O", "-", "-T", "8", "-t", "1",
                  "https://evil.test/", env=lab.proxy_env())
    assert r.status != 0 and "no_rule" in r.err, r
    r = lab.agent("wget", "-O", "-", "-T", "8", "-t", "1",
                  "http://evil.test/", env=lab.proxy_env())
    assert r.status != 0 and "403 Denied by penstock: no_rule" in r.err, r


def test_b73_no_proxy_variable_changes_nothing(gate):
    lab = gate.lab
    r = lab.agent("curl", "-sS", "--resolve", "evil.test:80:" + ADDRESS,
                  "http://evil.test/", env={**lab.proxy_env(),
                                            "no_proxy": "*"})
    assert "no_rule" in r.out and not reached(r), r


# ---- git ----

@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_git_clone(gate, way, scheme):
    lab = gate.lab
    d = scratch(lab, "clone")
    r = lab.agent("git", "clone", "-q", scheme + "://git.test/git/project.git",
                  d + "/c", env=env(lab, way))
    assert r.status == 0, r
    with open(d + "/c/file") as f:
        assert f.read() == "cloned\n"


def test_git_refused(gate):
    lab = gate.lab
    d = scratch(lab, "refused")
    r = lab.agent("git", "clone", "-q", "https://evil.test/git/project.git",
                  d + "/c", env=lab.proxy_env())
    assert r.status == 128 and "403" in r.err, r
    r = lab.agent("git", "-c", "http.curloptResolve=evil.test:443:" + ADDRESS,
                  "clone", "-q", "https://evil.test/git/project.git",
                  d + "/c")
    assert r.status == 128 and "denied" in r.err.lower(), r


# ---- package managers ----

@pytest.mark.parametrize("way", WAYS)
def test_apt(gate, way):
    lab = gate.lab
    d = scratch(lab, "apt")
    for sub in ("lists/partial", "cache/archives/partial", "etc"):
        os.makedirs(os.path.join(d, sub))
    with open(d + "/sources", "w") as f:
        f.write("deb [trusted=yes] http://pkg.test/apt ./\n")
    open(d + "/status", "w").close()
    lab.run("world", "chown", "-R", "1000:1000", d)
    apt = ["apt-get", "-q", "-o", "Dir::Etc=" + d + "/etc", "-o",
           "Dir::Etc::SourceList=" + d + "/sources", "-o",
           "Dir::State::Lists=" + d + "/lists", "-o", "Dir::State::Status=" +
           d + "/status", "-o", "Dir::Cache=" + d + "/cache", "-o",
           "Acquire::Retries=0", "-o", "APT::Sandbox::User=", "-o",
           "Debug::NoLocking=1"]
    r = lab.agent(*apt, "update", env=env(lab, way))
    assert r.status == 0, r
    r = lab.agent("sh", "-c", 'cd "$0" && shift 0 && exec "$@"', d, *apt,
                  "download", "lab-demo", env=env(lab, way))
    assert os.path.exists(d + "/lab-demo_1.0_all.deb"), r
    with open(d + "/sources", "w") as f:
        f.write("deb [trusted=yes] http://evil.test/apt ./\n")
    r = lab.agent(*apt, "update", env=env(lab, "cooperative"))
    assert "403" in r.text and "no_rule" in r.text, r


@pytest.mark.parametrize("way", WAYS)
def test_pip(gate, way):
    lab = gate.lab
    d = scratch(lab, "pip")
    pip = ["/usr/bin/python3", "-m", "pip", "install",
           "--disable-pip-version-check", "--no-cache-dir", "--retries", "1",
           "--timeout", "8", "--cert", lab.ca, "--target", d]
    r = lab.agent(*pip, "--index-url", "https://pkg.test/simple", "lab-demo",
                  env=env(lab, way), timeout=60)
    assert r.status == 0 and os.path.exists(d + "/lab_demo.py"), r
    if way == "cooperative":
        r = lab.agent(*pip, "--index-url", "https://evil.test/simple",
                      "lab-demo", env=env(lab, way), timeout=60)
        assert r.status != 0 and "no_rule" in r.text, r


@pytest.mark.parametrize("way", WAYS)
def test_npm(gate, way):
    lab = gate.lab
    d = scratch(lab, "npm")
    npm_ = ["npm", "install", "--prefix", d, "--cache", d + "/cache",
            "--no-audit", "--no-fund", "--no-update-notifier",
            "--fetch-retries=0", "--cafile", lab.ca]
    r = lab.agent(*npm_, "--registry", "https://pkg.test/npm/", "lab-demo",
                  env=env(lab, way), timeout=60)
    assert r.status == 0, r
    assert os.path.exists(d + "/node_modules/lab-demo/index.js"), r
    if way == "cooperative":
        r = lab.agent(*npm_, "--registry", "https://evil.test/npm/",
                      "lab-demo", env=env(lab, way), timeout=60)
        assert r.status != 0 and "no_rule" in r.text, r


# ---- languages ----

REQUESTS = "import requests, sys; print(requests.get(sys.argv[1]).text)"


@pytest.mark.parametrize("way", WAYS)
def test_python_requests(gate, way):
    lab = gate.lab
    r = lab.python(REQUESTS, "https://allowed.test/", env=env(lab, way))
    assert reached(r), r
    r = lab.python(REQUESTS, "http://evil.test/", env=lab.proxy_env())
    assert "no_rule" in r.out, r
    r = lab.python(REQUESTS, "https://evil.test/", env=lab.proxy_env())
    assert "403 Denied by penstock: no_rule" in r.err, r


FETCH = "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t)" \
    ").catch(e => console.log('cause', e.cause && e.cause.code, e.message))"


@pytest.mark.parametrize("variables", ["none", "env-proxy"])
def test_node_fetch(gate, variables):
    """With proxy variables or without, fetch is captured all the same."""
    lab = gate.lab
    more = {} if variables == "none" else {"NODE_USE_ENV_PROXY": "1",
                                           **lab.proxy_env()}
    r = lab.agent("node", "-e", FETCH, "https://allowed.test/", env=more)
    assert reached(r), r
    r = lab.agent("node", "-e", FETCH, "https://evil.test/", env=more)
    assert "cause" in r.out and not reached(r), r


def test_w24_b035_ssh(gate):
    lab = gate.lab
    ssh = ["ssh", "-i", lab.dir + "/userkey", "-o", "BatchMode=yes", "-o",
           "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
           "-o", "ConnectTimeout=8"]
    r = lab.agent(*ssh, "root@ssh.test", "true")
    assert "shell-reached" in r.out, r
    # the same address under a name that no rule opens on this port
    r = lab.agent(*ssh, "root@allowed.test", "true")
    assert r.status == 255 and "shell-reached" not in r.out, r
    r = lab.agent(*ssh, "root@203.0.113.11", "true")
    assert r.status == 255 and "shell-reached" not in r.out, r


WEBSOCKET = """
import base64, os, socket, sys
proxy = sys.argv[1]
s = socket.create_connection((proxy or "203.0.113.13",
                              15080 if proxy else 80), 8)
target = "http://ws.test/" if proxy else "/"
s.sendall(("GET %s HTTP/1.1\\r\\nHost: ws.test\\r\\nUpgrade: websocket\\r\\n"
           "Connection: Upgrade\\r\\nSec-WebSocket-Key: %s\\r\\n"
           "Sec-WebSocket-Version: 13\\r\\n\\r\\n" % (target,
           base64.b64encode(os.urandom(16)).decode())).encode())
f = s.makefile("rb")
print(f.readline().decode().strip())
while f.readline().strip():
    pass
for word in (b"one", b"two"):
    mask = os.urandom(4)
    s.sendall(bytes([0x81, 0x80 | len(word)]) + mask +
              bytes(b ^ mask[i % 4] for i, b in enumerate(word)))
    head = f.read(2)
    print("frame", f.read(head[1]).decode())
"""


@pytest.mark.parametrize("way", WAYS)
def test_websocket(gate, way):
    lab = gate.lab
    r = lab.python(WEBSOCKET,
                   lab.proxy_address if way == "cooperative" else "")
    assert "101" in r.out and "frame one" in r.out and "frame two" in r.out, r
