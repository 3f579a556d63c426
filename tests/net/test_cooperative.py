# SPDX-License-Identifier: Apache-2.0
"""Clients that come to penstock by themselves: with proxy variables as
`penstock env` prints them, or because a name leads to its named listeners.
No kernel rule takes part.  What is refused is first had from relays and a
proxy without a policy at the same places."""
import os
import subprocess

import pytest
import yaml

from cases import GET, TCP, Case, curl, reached, shut
from lab import LabError, POLICY, PYTHON
from test_clients import npm, npm_install, pip, scratch, wheel

OWN = "198.18.0.1"
CELL = "agents/one@lab"         # the worst that an id may be in a URL
CONFIG = """\
version: 1
mode: cooperative
engines: 1
admin: unix:%s/admin.sock
listeners:
  - {name: explicit, kind: explicit, address: "198.18.0.1:15080"%s}
  - {name: named-http, kind: named, address: "198.18.0.1:80"}
  - {name: named-https, kind: named, address: "198.18.0.1:443"}
cells:
  - {id: "%s", policy: [policy.yaml]%s}
"""
RELAY = """
import socket, threading
def pump(a, b):
    try:
        while True:
            d = a.recv(65536)
            if not d:
                break
            b.sendall(d)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def serve(s, port):
    while True:
        c, _ = s.accept()
        u = socket.create_connection(("203.0.113.10", port))
        for pair in ((c, u), (u, c)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
for port in (80, 443):
    s = socket.create_server(("198.18.0.1", port))
    threading.Thread(target=serve, args=(s, port)).start()
print("ready", flush=True)
"""


FIRST = """
import socket
s = socket.create_server(("198.18.0.1", 15999))
print("ready", flush=True)
print(s.accept()[0].recv(65536))
"""


class Coop:
    """penstock in the gateway's namespace, without any rule."""

    def __init__(self, lab, credential):
        made = lab.run("world", lab.binary, "token").text
        self.lab, self.credential = lab, credential
        self.token = made.split("token:")[1].split()[0]
        hashed = made.split("credential:")[1].split()[0]
        d = os.path.join(lab.dir, "coop%d" % lab.starts)
        os.mkdir(d)
        lab.conf, lab.admin = d + "/penstock.yaml", d + "/admin.sock"
        with open(lab.conf, "w") as f:
            f.write(CONFIG % (
                d, ", credential: true" if credential else "", CELL,
                ', from: {credential: "%s"}' % hashed if credential else ""))
        with open(d + "/policy.yaml", "w") as f:
            f.write(POLICY.replace("enforce: strict", "enforce: cooperative"))

    def env(self, form, *more):
        r = self.lab.run("gateway", self.lab.binary, "env", "-c",
                         self.lab.conf, "--cell", CELL, "--format", form,
                         *more, env={**os.environ,
                                     "PENSTOCK_TOKEN": self.token})
        assert r.status == 0 and not r.err, r
        return r.out


@pytest.fixture(scope="module", params=["open", "credential"])
def coop(request, lab):
    lab.unguarded("gateway")
    lab.forward(False)              # no way out but penstock's
    made = Coop(lab, request.param == "credential")
    lab.serve()
    yield made
    lab.down()


@pytest.fixture(scope="module", autouse=True)
def packages(lab):
    www = os.path.join(lab.dir, "www")
    for make, d in ((wheel, "simple/lab-demo"), (npm, "npm")):
        if not os.path.isdir(os.path.join(www, d)):
            make(os.path.join(www, d))


def by_shell(shell, text):
    """The variables that a shell has after `eval`."""
    r = subprocess.run([shell, "-c", 'eval "$1" && env -0', shell, text],
                       env={}, capture_output=True, text=True, check=True,
                       executable="/bin/" + shell, timeout=10)
    found = dict(v.split("=", 1) for v in r.stdout.split("\0") if v)
    return {k: v for k, v in found.items()
            if k not in ("PWD", "SHLVL", "_", "OLDPWD")}


def by_env_file(text):
    """As docker run --env-file: each line as it is, no quotes."""
    return dict(line.split("=", 1) for line in text.splitlines())


def by_compose(text):
    doc = yaml.safe_load("services:\n  agent:\n    environment:\n" + text)
    assert "$" not in text          # compose would put something there
    return doc["services"]["agent"]["environment"]


def by_k8s(text):
    doc = yaml.safe_load("spec:\n  containers:\n    - name: agent\n"
                         "      env:\n" + text)
    return {e["name"]: e["value"]
            for e in doc["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize("more", [(), ("--address", "[fd42:18::1]:15080"),
                                  ("--address", "proxy.internal:15080")])
def test_all_forms_say_the_same(coop, more):
    want = by_env_file(coop.env("docker", *more))
    at = more[1] if more else OWN + ":15080"
    user = "agents%%2Fone%%40lab:%s@" % coop.token if coop.credential else ""
    for k in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        assert want[k] == "http://%s%s" % (user, at), want
    for shell in ("sh", "bash", "dash"):
        assert by_shell(shell, coop.env("sh", *more)) == want, shell
    assert by_compose(coop.env("compose", *more)) == want
    assert by_k8s(coop.env("k8s", *more)) == want


def npm_gives_a_credential(lab, env):
    """Debian 13's npm gives none to any proxy: its parts disagree about where
    it stands."""
    peer = lab.start("gateway", PYTHON, "-c", FIRST, stdout=subprocess.PIPE)
    assert peer.stdout.readline() == b"ready\n"
    npm_install(lab, "pkg.test", {k: v.replace(":15080", ":15999")
                                  for k, v in env.items()})
    head = peer.stdout.readline().lower()
    lab.stop(peer)
    assert b"connect pkg.test:443" in head, head
    return b"proxy-authorization" in head


def test_programs_work_under_them(coop):
    """And only under them: nothing else leads out of this namespace."""
    lab, env = coop.lab, by_shell("sh", coop.env("sh"))
    direct = ("--resolve", "allowed.test:443:203.0.113.10",
              "https://allowed.test/")
    assert not reached(curl("-m", "2", *direct)(lab))
    for scheme in ("http", "https"):
        r = curl(scheme + "://allowed.test/", env=env)(lab)
        assert reached(r), r
    d = scratch(lab, "clone")
    r = lab.agent("git", "clone", "-q", "https://git.test/git/project.git",
                  d + "/c", env=env)
    assert r.status == 0 and os.path.exists(d + "/c/file"), r
    r = pip(lab, "pkg.test", env)
    assert r.status == 0, r
    r = npm_install(lab, "pkg.test", env)
    if coop.credential and not npm_gives_a_credential(lab, env):
        assert "407 Proxy credential required by penstock: auth_required " \
            "pkg.test:443" in r.text, r
    else:
        assert r.status == 0, r
    for name in ("allowed.test", "git.test", "pkg.test"):
        assert lab.record(kind="decision", verdict="allow", via="connect",
                          name=name)["cell"] == CELL


def test_a_denied_name_is_refused_in_words(coop):
    env = by_shell("dash", coop.env("sh"))
    r = curl("-vk", "https://evil.test/", env=env)(coop.lab)
    assert r.status == 56 and "response 403" in r.err, r
    assert "Denied by penstock: no_rule evil.test:443" in r.err, r
    r = curl("http://denied.test/", env=env)(coop.lab)
    assert "use the artifact store" in r.out and not reached(r), r
    assert coop.lab.record(kind="decision", name="evil.test",
                           cell=CELL)["reason"] == "no_rule"


def test_nothing_is_said_to_be_enforced(coop):
    lab = coop.lab
    assert lab.get("/readyz")[0] == 200
    assert lab.records(kind="start") and not lab.records(kind="rules")
    assert "rules stand" not in lab.log()
    assert "not enforcing" in coop.lab.get("/readyz")[1]
    assert 'penstock_check_ok{check="enforcing"' in \
        coop.lab.get("/metrics")[1]


# ---- the named listeners ----

def at_own(name, scheme, *args):
    port = {"http": 80, "https": 443}[scheme]
    return curl("-k", *args, "--resolve", "%s:%d:%s" % (name, port, OWN),
                "%s://%s/" % (scheme, name))


def send(port, data):
    return lambda lab: lab.python(TCP, OWN, port, data, "", "6")


def alert(lab, r):
    assert "alert access denied" in r.text, r


def words(*wanted):
    def closed(lab, r):
        assert all(w in r.text for w in wanted), r
    return closed


def reason(wanted):
    def closed(lab, r):
        assert not reached(r), r
        assert lab.record(kind="decision", verdict="deny", via="named",
                          reason=wanted)
    return closed


def arrived(word):
    return lambda r: any(word in e.get("line", "") for e in r.arrived)


NAMED = [
    Case("https-denied", at_own("evil.test", "https"), reached, alert),
    Case("http-denied", at_own("evil.test", "http", "-i"), reached,
         words(" 403 ", "no_rule", "evil.test")),
    Case("http-a-deny-rule-speaks", at_own("denied.test", "http"), reached,
         words("use the artifact store")),
    Case("https-nameless", curl("-k", "https://%s/" % OWN), reached,
         reason("no_sni")),
    Case("http-nameless", send("80", "GET / HTTP/1.0\\r\\n\\r\\n"),
         lambda r: "reached" in r.out, reason("head_malformed")),
    Case("http-own-address", curl("-i", "http://%s/" % OWN), reached,
         words(" 403 ", "address_literal")),
    Case("connect", send("80", "CONNECT allowed.test:443 HTTP/1.1\\r\\n"
                         "Host: allowed.test:443\\r\\n\\r\\n"),
         lambda r: r.arrived, words("HTTP/1.1 4")),
    Case("absolute-form", send("80", "GET http://evil.test/ HTTP/1.1\\r\\n"
                               "Host: allowed.test\\r\\n"
                               "Connection: close\\r\\n\\r\\n"),
         lambda r: "reached evil.test" in r.out, words("HTTP/1.1 4")),
    Case("no-protocol-on-443", send("443", "SSH-2.0-x\\r\\n"),
         lambda r: "400" in r.out, reason("not_tls")),
]


@pytest.fixture(scope="module")
def relayed(lab):
    """What the attempts give at a relay without a policy."""
    lab.unguarded("gateway")
    relay = lab.start("gateway", PYTHON, "-c", RELAY, stdout=subprocess.PIPE)
    try:
        if relay.stdout.readline() != b"ready\n":
            raise LabError("the relay did not start")
        return {c.name: lab.watched(c.attempt, True) for c in NAMED}
    finally:
        lab.stop(relay)


@pytest.fixture(scope="module")
def named(relayed, lab):
    lab.forward(False)
    Coop(lab, False)
    lab.serve()
    yield lab
    lab.down()


@pytest.mark.parametrize("one", NAMED, ids=[c.name for c in NAMED])
def test_named_refuses_what_a_relay_passes(relayed, named, one):
    leak = relayed[one.name]
    assert one.leaks(leak), "it does not leak without the guard: %r" % leak
    r = shut(named, one.attempt)
    assert r.status != "timeout" and not r.arrived and not reached(r), r
    one.closed(named, r)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_named_serves_an_allowed_name(named, scheme):
    r = named.watched(at_own("allowed.test", scheme), True)
    assert reached(r) and r.arrived, r
    assert named.record(kind="decision", verdict="allow", via="named",
                        name="allowed.test")["cell"] == CELL
