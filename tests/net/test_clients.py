# SPDX-License-Identifier: Apache-2.0
"""Real clients, transparent and with proxy variables: what works for an
allowed name, what they print on a refusal.  What is refused is first had
without the guard, with proxy variables from a proxy without a policy."""
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

from cases import Case, check_pair, reached

ADDRESS = "203.0.113.10"
WAYS = ["transparent", "cooperative"]
PLAIN_PROXY = True
EVIL_443 = ("--resolve", "evil.test:443:" + ADDRESS)


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
    """Inside TLS it is the server's matter."""
    lab = gate.lab
    r = lab.agent("curl", "-sS", "--http2", "https://allowed.test/",
                  env=env(lab, way))
    assert "reached allowed.test" in r.out, r


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_wget(gate, way, scheme):
    r = gate.lab.agent("wget", "-q", "-O", "-", "-T", "8", "-t", "1",
                       "--ca-certificate", gate.lab.ca,
                       scheme + "://allowed.test/", env=env(gate.lab, way))
    assert r.status == 0 and "reached allowed.test" in r.out, r


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


# ---- package managers ----

def apt_get(lab, host, what, more):
    """apt-get with a state of its own, as the agent."""
    d = scratch(lab, "apt")
    for sub in ("lists/partial", "cache/archives/partial", "etc"):
        os.makedirs(os.path.join(d, sub))
    with open(d + "/sources", "w") as f:
        f.write("deb [trusted=yes] http://%s/apt ./\n" % host)
    open(d + "/status", "w").close()
    lab.run("world", "chown", "-R", "1000:1000", d)
    apt = ["apt-get", "-q", "-o", "Dir::Etc=" + d + "/etc", "-o",
           "Dir::Etc::SourceList=" + d + "/sources", "-o",
           "Dir::State::Lists=" + d + "/lists", "-o", "Dir::State::Status=" +
           d + "/status", "-o", "Dir::Cache=" + d + "/cache", "-o",
           "Acquire::Retries=0", "-o", "APT::Sandbox::User=", "-o",
           "Debug::NoLocking=1"]
    r = lab.agent(*apt, "update", env=more)
    if r.status or not what:
        return r
    return lab.agent("sh", "-c", 'cd "$0" && exec "$@" && ls', d, *apt,
                     "download", what, env=more)


@pytest.mark.parametrize("way", WAYS)
def test_apt(gate, way):
    lab = gate.lab
    r = apt_get(lab, "pkg.test", "lab-demo", env(lab, way))
    assert r.status == 0, r
    assert os.path.exists(lab.dir + "/home/apt/lab-demo_1.0_all.deb"), r


def pip(lab, host, more):
    return lab.agent("/usr/bin/python3", "-m", "pip", "install",
                     "--disable-pip-version-check", "--no-cache-dir",
                     "--retries", "1", "--timeout", "8", "--cert", lab.ca,
                     "--target", scratch(lab, "pip"), "--index-url",
                     "https://%s/simple" % host, "lab-demo", env=more,
                     timeout=60)


@pytest.mark.parametrize("way", WAYS)
def test_pip(gate, way):
    lab = gate.lab
    r = pip(lab, "pkg.test", env(lab, way))
    assert r.status == 0, r
    assert os.path.exists(lab.dir + "/home/pip/lab_demo.py"), r


def npm_install(lab, host, more):
    d = scratch(lab, "npm")
    return lab.agent("npm", "install", "--prefix", d, "--cache",
                     d + "/cache", "--no-audit", "--no-fund",
                     "--no-update-notifier", "--fetch-retries=0", "--cafile",
                     lab.ca, "--registry", "https://%s/npm/" % host,
                     "lab-demo", env=more, timeout=60)


@pytest.mark.parametrize("way", WAYS)
def test_npm(gate, way):
    lab = gate.lab
    r = npm_install(lab, "pkg.test", env(lab, way))
    assert r.status == 0, r
    assert os.path.exists(lab.dir + "/home/npm/node_modules/lab-demo/"
                          "index.js"), r


# ---- languages ----

REQUESTS = "import requests, sys; print(requests.get(sys.argv[1]).text)"


@pytest.mark.parametrize("way", WAYS)
def test_python_requests(gate, way):
    lab = gate.lab
    r = lab.python(REQUESTS, "https://allowed.test/", env=env(lab, way))
    assert reached(r), r


# Each speaks HTTP/1.0 and knows no chunks; the server answers in chunks.
URLLIB_1_0 = """
import http.client, sys, urllib.request
http.client.HTTPConnection._http_vsn = 10
http.client.HTTPConnection._http_vsn_str = "HTTP/1.0"
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=8).read()
                 .decode())
"""
CLIENTS_1_0 = {
    "curl": lambda lab, url, more: lab.agent(
        "curl", "-sS", "-m", "8", "--http1.0", url, env=more),
    "urllib": lambda lab, url, more: lab.python(URLLIB_1_0, url, env=more),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", sorted(CLIENTS_1_0))
def test_a_client_of_1_0_reads_what_comes_in_chunks(gate, way, client):
    get, more = CLIENTS_1_0[client], env(gate.lab, way)
    r = get(gate.lab, "http://fault.test/chunks", more)
    assert r.status == 0, r
    assert r.out == "in two " + "x" * 100000 + " chunks\n", r
    r = get(gate.lab, "http://fault.test/chunks-cut", more)
    assert r.status not in (0, "timeout"), r
    assert "reset" in r.text.lower(), r


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


def ssh(lab, host):
    return lab.agent("ssh", "-i", lab.dir + "/userkey", "-o",
                     "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o",
                     "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=8",
                     "root@" + host, "true")


def test_w24_b035_ssh(gate):
    r = ssh(gate.lab, "ssh.test")
    assert "shell-reached" in r.out, r


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


# ---- refusals, as each client prints them ----

def asked(*argv, cooperative=True, **more):
    """The same command, as the agent, with proxy variables or without."""
    return lambda lab: lab.agent(*argv, env={
        **(lab.proxy_env() if cooperative else {}), **more})


def clone_evil(*options, cooperative=True):
    def attempt(lab):
        return lab.agent("git", *options, "clone", "-q",
                         "https://evil.test/git/project.git",
                         scratch(lab, "refused") + "/c",
                         env=lab.proxy_env() if cooperative else {})
    return attempt


def worked(r):
    return r.status == 0


def printed(*words, status=None):
    """All of these; of a tuple one, where versions of a client differ."""
    wanted = [w if isinstance(w, tuple) else (w,) for w in words]

    def closed(lab, r):
        assert r.status != 0 if status is None else r.status == status, r
        for forms in wanted:
            assert any(w in r.text for w in forms), (forms, r)
        assert not reached(r) and not r.arrived, r
    return closed


def shell(r):
    return "shell-reached" in r.out


def wget(url, cooperative=True):
    return lambda lab: lab.agent("wget", "-O", "-", "-T", "8", "-t", "1",
                                 "--ca-certificate", lab.ca, url,
                                 env=lab.proxy_env() if cooperative else {})


def requests(url, cooperative=True):
    return lambda lab: lab.python(
        REQUESTS, url, env=lab.proxy_env() if cooperative else {})


def node(code, url):
    """A program that is told its proxy: this Node reads no variables."""
    return lambda lab: lab.agent("node", "-e", code, url,
                                 lab.proxy_env()["https_proxy"])


# What fetch is made of, and would do if it had a proxy: Debian's Node has it
# as a package, others have npm's.
UNDICI = """
const npm = () => require("child_process").execSync("npm root -g")
    .toString().trim() + "/npm/node_modules/";
const find = at => { try { return require(at); } catch { return null; } };
const { fetch, ProxyAgent } = find("undici") || require(npm() + "undici");
const dispatcher = new ProxyAgent({ uri: process.argv[2],
    requestTls: { ca: require("fs").readFileSync(process.env.SSL_CERT_FILE) }
});
fetch(process.argv[1], { dispatcher }).then(r => r.text())
    .then(t => console.log(t))
    .catch(e => console.log("cause", e.cause && e.cause.message, e.message));
"""
NODE_CONNECT = """
const to = new URL(process.argv[1]);
const http = require("http"), https = require("https");
http.request(process.argv[2], { method: "CONNECT", path: to.host + ":443",
    headers: { Host: to.host + ":443" } }).on("connect", (r, socket) => {
	if (r.statusCode !== 200)
		return console.log("refused", r.statusCode, r.statusMessage,
		    r.headers["proxy-status"]), socket.destroy();
	https.get(to, { socket, agent: false }, r => {
		r.on("data", d => console.log(d.toString()));
		r.on("end", () => socket.destroy());
	});
}).on("error", e => console.log("error", e.code)).end();
"""

CURL = ("curl", "-sS", "-m", "8")
SAID = "403 Denied by penstock: no_rule"
OPENSSL_SAYS = "tlsv1 alert access denied"
CASES = [
    Case("curl", asked(*CURL, "-k", *EVIL_443, "https://evil.test/",
                       cooperative=False), reached,
         printed("access denied", status=35)),
    Case("curl-cooperative", asked(*CURL, "https://evil.test/"), reached,
         printed("CONNECT tunnel failed, response 403")),
    Case("curl-h2c", asked(*CURL, "--http2", "http://allowed.test/",
                           cooperative=False), reached,
         printed("(upgrade)", status=0)),
    Case("curl-h2c-cooperative", asked(*CURL, "--http2",
                                       "http://allowed.test/"), reached,
         printed("(upgrade)", status=0)),
    Case("B73-no_proxy-changes-nothing",
         asked(*CURL, "--resolve", "evil.test:80:" + ADDRESS,
               "http://evil.test/", no_proxy="*"), reached,
         printed("no_rule", status=0)),
    Case("wget-https", wget("https://evil.test/"), reached,
         printed("no_rule")),
    Case("wget-http", wget("http://evil.test/"), reached, printed(SAID)),
    Case("git-cooperative", clone_evil(), worked,
         printed("CONNECT tunnel failed, response 403", status=128)),
    Case("git", clone_evil("-c", "http.curloptResolve=evil.test:443:" +
                           ADDRESS, cooperative=False), worked,
         printed("Access was denied", status=128)),
    Case("apt", lambda lab: apt_get(lab, "evil.test", None, lab.proxy_env()),
         worked, lambda lab, r: said_by_apt(r)),
    Case("wget-https-transparent", wget("https://evil.test/", False),
         reached, printed("received alert [49]: Access was denied",
                          status=4)),
    Case("pip", lambda lab: pip(lab, "evil.test", lab.proxy_env()), worked,
         printed("Tunnel connection failed: " + SAID + " evil.test:443")),
    Case("pip-transparent", lambda lab: pip(lab, "evil.test", {}),
         worked, printed("TLSV1_ALERT_ACCESS_DENIED", OPENSSL_SAYS)),
    Case("npm", lambda lab: npm_install(lab, "evil.test", lab.proxy_env()),
         worked, printed("code E403", SAID + " evil.test:443")),
    Case("npm-transparent",
         lambda lab: npm_install(lab, "evil.test", {}), worked,
         printed(("code ERR_SSL_TLSV1_ALERT_ACCESS_DENIED", "code EPROTO"),
                 OPENSSL_SAYS)),
    Case("requests-transparent", requests("https://evil.test/", False),
         reached, printed("TLSV1_ALERT_ACCESS_DENIED", OPENSSL_SAYS)),
    Case("requests-http", requests("http://evil.test/"), reached,
         printed("no_rule", status=0)),
    Case("requests-https", requests("https://evil.test/"), reached,
         printed(SAID)),
    Case("node-transparent",
         asked("node", "-e", FETCH, "https://evil.test/",
               cooperative=False), reached,
         printed("cause ERR_SSL_TLSV1_ALERT_ACCESS_DENIED fetch failed",
                 status=0)),
    Case("node-env-proxy", asked("node", "-e", FETCH, "https://evil.test/",
                                 NODE_USE_ENV_PROXY="1"), reached,
         printed("cause", "fetch failed", status=0)),
    # undici throws the answer away: its number and its words
    Case("node-undici", node(UNDICI, "https://evil.test/"), reached,
         printed("cause", "fetch failed", status=0)),
    Case("node-connect", node(NODE_CONNECT, "https://evil.test/"), reached,
         printed("refused " + SAID + " evil.test:443 penstock; ",
                 status=0)),
    # the same server under a name that no rule opens on this port; ssh says
    # whether it was reset while it connected or when it read
    Case("ssh-another-name", lambda lab: ssh(lab, "allowed.test"), shell,
         printed("Connection reset by", status=255), logged=False),
    Case("ssh-by-address", lambda lab: ssh(lab, ADDRESS), shell,
         printed("Connection reset by", status=255), logged=False),
]


def said_by_apt(r):
    assert "403" in r.text and "no_rule" in r.text and not r.arrived, r


def test_closed_after_leak(gate, case):
    check_pair(gate, case)
