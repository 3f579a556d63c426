# SPDX-License-Identifier: Apache-2.0
"""Namespaces, servers and penstock itself, for the tests and the demo.

    agent --- 198.18.0.0/24 --- gateway --- world        mode gateway
    shared (agent's uid and penstock) ------ world       mode shared

The world holds 203.0.113.0/24, 2001:db8:113::/64 and a few special-use
addresses on its loopback.  No namespace has a route to the machine.  All is
made under one prefix and taken away by close(), whatever happened before.
"""
import atexit
import contextlib
import functools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
AGENT_UID = 1000
PYTHON = "/usr/bin/python3"


@functools.cache
def _scripts():
    """This folder's scripts where an agent's uid can read them: the checkout
    may stand in a home that is closed to others."""
    d = tempfile.mkdtemp(prefix="penstock-scripts-")
    atexit.register(shutil.rmtree, d, ignore_errors=True)
    os.chmod(d, 0o755)
    for name in os.listdir(HERE):
        if name.endswith(".py"):
            shutil.copy(os.path.join(HERE, name), d)
            os.chmod(os.path.join(d, name), 0o644)
    return d


def script(name):
    """The path of one of this folder's scripts, for an agent to run."""
    return os.path.join(_scripts(), name)


# All that a name may have here; None of it is known to the real world.
NAMES = {
    "allowed.test": ["203.0.113.10"],
    "other.test": ["203.0.113.11"],
    "dual.test": ["203.0.113.10", "2001:db8:113::10"],
    "six.test": ["2001:db8:113::10"],
    "evil.test": ["203.0.113.10"],
    "denied.test": ["203.0.113.11"],
    "git.test": ["203.0.113.10"],
    "pkg.test": ["203.0.113.10"],
    "ssh.test": ["203.0.113.14"],
    "echo.test": ["203.0.113.15"],
    "retry.test": ["203.0.113.14"],
    "outer.test": ["203.0.113.15"],
    "h2.wild.test": ["203.0.113.21"],
    "hidden.test": ["203.0.113.21"],
    "fault.test": ["203.0.113.12"],
    "ws.test": ["203.0.113.13"],
    "rebind.test": ["10.9.9.9"],
    "meta.test": ["169.254.169.254"],
    "loop.test": ["127.0.0.1"],
    "silent.test": {"timeout": True},
    "broken.test": {"rcode": "SERVFAIL"},
    "alias.test": {"CNAME": "allowed.test"},
    "alias-private.test": {"CNAME": "rebind.test"},
    "long.test": {"A": ["203.0.113.10"], "truncate": True},
    "down.test": ["203.0.113.99", "203.0.113.10"],
    "a.wild.test": ["203.0.113.10"],
    "wild.test": ["203.0.113.10"],
}

POLICY = """\
version: 1
network:
  default: deny
  enforce: strict
  resolvers: [203.0.113.53]
  help: "ask #platform, form FW-1"
  lab: [203.0.113.0/24, "2001:db8:113::/64"]
  rule:
    - {verdict: deny, hostname: denied.test, reason: "use the artifact store", id: no-denied}
    - {verdict: allow, hostname: allowed.test}
    - {verdict: allow, hostname: other.test}
    - {verdict: allow, hostname: dual.test}
    - {verdict: allow, hostname: six.test}
    - {verdict: allow, hostname: git.test}
    - {verdict: allow, hostname: pkg.test}
    - {verdict: allow, hostname: fault.test, ports: [80]}
    - {verdict: allow, hostname: ws.test, ports: [80]}
    - {verdict: allow, hostname: rebind.test}
    - {verdict: allow, hostname: meta.test}
    - {verdict: allow, hostname: loop.test}
    - {verdict: allow, hostname: silent.test}
    - {verdict: allow, hostname: broken.test}
    - {verdict: allow, hostname: down.test}
    - {verdict: allow, hostname: alias.test}
    - {verdict: allow, hostname: alias-private.test}
    - {verdict: allow, hostname: long.test}
    - {verdict: allow, hostname: "*.wild.test", ports: [443]}
    - {verdict: allow, hostname: ssh.test, ports: [22], protocol: tcp}
    - {verdict: allow, hostname: echo.test, ports: [7000], protocol: tcp}
    - {verdict: allow, hostname: retry.test, ports: [443]}
    - {verdict: allow, hostname: outer.test, ports: [443]}
"""


class LabError(Exception):
    pass


def sh(*argv, check=True, **kw):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=60, **kw)
    if check and r.returncode:
        raise LabError("%s: %s%s" % (" ".join(argv), r.stdout, r.stderr))
    return r


class Result:
    """What one attempt gave: status, both outputs, seconds."""

    def __init__(self, argv, status, out, err, seconds):
        self.argv, self.status, self.out, self.err = argv, status, out, err
        self.seconds = seconds
        self.arrived = []           # what the world's servers saw of it

    @property
    def text(self):
        return self.out + self.err

    def __repr__(self):
        return "%s\n  status %s in %.2f s\n  out: %s\n  err: %s" % (
            " ".join(self.argv)[:400], self.status, self.seconds,
            self.out[-1500:], self.err[-1500:]) + "".join(
                "\n  arrived: %r" % e for e in self.arrived)


class Lab:
    def __init__(self, binary=None, quiet=True):
        self.binary = os.path.abspath(binary or os.environ.get("PENSTOCK") or
                                      ROOT + "/build/release/penstock")
        self.prefix = "pst%d" % os.getpid()
        self.dir = tempfile.mkdtemp(prefix="penstock-net-")
        os.chmod(self.dir, 0o755)
        self.children = []
        self.spaces = []
        self.dns = None
        self.penstock = None
        self.plain_proxy = None
        self.space = None           # where penstock runs
        self.mode = None
        self.starts = 0
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    # ---- namespaces ----

    def ns(self, name):
        return "%s-%s" % (self.prefix, name)

    def ip(self, space, *argv, check=True):
        return sh("ip", "-n", self.ns(space), *argv, check=check)

    def _space(self, name):
        sh("ip", "netns", "add", self.ns(name))
        self.spaces.append(name)
        self.ip(name, "link", "set", "lo", "up")
        for key in ("net.ipv4.ping_group_range=0 2147483647",
                    "net.ipv6.conf.all.accept_dad=0",
                    "net.ipv6.conf.default.accept_dad=0"):
            sh("ip", "netns", "exec", self.ns(name), "sysctl", "-qw", key)
        etc = "/etc/netns/" + self.ns(name)
        while not os.path.isdir(etc):
            # another lab may take the empty one away in between
            with contextlib.suppress(FileNotFoundError):
                os.makedirs(etc)
        with open(etc + "/resolv.conf", "w") as f:
            f.write("nameserver 203.0.113.53\noptions timeout:3 attempts:2\n")
        with open(etc + "/hosts", "w") as f:
            f.write("127.0.0.1 localhost\n")
        with open("/etc/passwd") as f, open(etc + "/passwd", "w") as own:
            own.write(f.read() + self._agent_user())

    @staticmethod
    def _agent_user():
        """A line for the agent, where nobody has its uid: ssh asks who it
        is."""
        try:
            pwd.getpwuid(AGENT_UID)
        except KeyError:
            return "agent:x:%d:%d::/nonexistent:/bin/sh\n" % (AGENT_UID,
                                                             AGENT_UID)
        return ""

    def _wire(self, a, dev_a, b, dev_b, four, six):
        """A veth; a gets .1 of four and ::1 of six, b gets .2 and ::2."""
        sh("ip", "link", "add", "name", dev_a, "netns", self.ns(a), "type",
           "veth", "peer", "name", dev_b, "netns", self.ns(b))
        for space, dev, last in ((a, dev_a, 1), (b, dev_b, 2)):
            self.ip(space, "addr", "add", "%s.%d/24" % (four, last), "dev",
                    dev)
            self.ip(space, "addr", "add", "%s::%d/64" % (six, last), "dev",
                    dev, "nodad")
            self.ip(space, "link", "set", dev, "up")

    def _default(self, space, four, six):
        self.ip(space, "route", "add", "default", "via", four)
        self.ip(space, "-6", "route", "add", "default", "via", six)

    def _build(self):
        for name in ("agent", "gateway", "world", "shared"):
            self._space(name)
        self._wire("gateway", "ag0", "agent", "eth0", "198.18.0", "fd42:18")
        self._wire("world", "gw0", "gateway", "up0", "198.18.2", "fd42:2")
        self._wire("world", "sh0", "shared", "eth0", "198.18.3", "fd42:3")
        self._default("agent", "198.18.0.1", "fd42:18::1")
        self._default("gateway", "198.18.2.1", "fd42:2::1")
        self._default("shared", "198.18.3.1", "fd42:3::1")
        self.ip("world", "route", "add", "198.18.0.0/24", "via", "198.18.2.2")
        self.ip("world", "-6", "route", "add", "fd42:18::/64", "via",
                "fd42:2::2")
        for a in ("203.0.113.10", "203.0.113.11", "203.0.113.12",
                  "203.0.113.13", "203.0.113.14", "203.0.113.15",
                  "203.0.113.21", "203.0.113.53", "203.0.113.66",
                  "10.9.9.9", "169.254.169.254", "192.0.2.1"):
            self.ip("world", "addr", "add", a + "/32", "dev", "lo")
        self.ip("world", "addr", "add", "2001:db8:113::10/128", "dev", "lo",
                "nodad")
        self.names(NAMES)
        self._certificates()
        self._servers()

    # ---- servers ----

    def names(self, table):
        """What the world's DNS server says from now on."""
        zone = {}
        for name, has in table.items():
            if isinstance(has, dict):
                zone[name] = has
                continue
            zone[name] = {"ttl": 30}
            for kind, v6 in (("A", False), ("AAAA", True)):
                found = [a for a in has if (":" in a) is v6]
                if found:
                    zone[name][kind] = found
        path = os.path.join(self.dir, "zone")
        with open(path + ".new", "w") as f:
            json.dump(zone, f)
        os.rename(path + ".new", path)
        if self.dns is not None:
            self.dns.send_signal(signal.SIGHUP)
            time.sleep(0.1)

    def _certificates(self):
        d = self.dir
        self.ca = os.path.join(d, "ca.pem")
        alt = ",".join("DNS:" + n for n in NAMES) + ",DNS:*.wild.test," \
            "IP:203.0.113.10"
        with open(d + "/ext", "w") as f:
            f.write("subjectAltName=%s\n" % alt)
        sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
           "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
           "/CN=lab authority", "-keyout", d + "/ca.key", "-out", self.ca)
        sh("openssl", "req", "-newkey", "ec", "-pkeyopt",
           "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=allowed.test",
           "-keyout", d + "/srv.key", "-out", d + "/srv.csr")
        sh("openssl", "x509", "-req", "-in", d + "/srv.csr", "-CA", self.ca,
           "-CAkey", d + "/ca.key", "-CAcreateserial", "-days", "2",
           "-extfile", d + "/ext", "-out", d + "/srv.pem")

    def _servers(self):
        d = self.dir
        for sub in ("www", "logs", "tmp", "git"):
            os.makedirs(os.path.join(d, sub))
        with open(d + "/www/object", "wb") as f:
            f.write(b"x" * 300000)
        self._git()
        with open(d + "/nginx.conf", "w") as f:
            f.write(NGINX.replace("@DIR@", d))
        self.start("world", "nginx", "-p", d, "-e", d + "/logs/error", "-c",
                   d + "/nginx.conf", "-g", "daemon off;")
        self.start("world", "fcgiwrap", "-s", "unix:" + d + "/fcgi.sock",
                   env={**os.environ, "HOME": d})
        self.dns = self.start("world", PYTHON, HERE + "/dnsserver.py",
                              "203.0.113.53", "53", d + "/zone",
                              d + "/asked", stdout=subprocess.PIPE)
        world = self.start("world", PYTHON, HERE + "/world.py", d,
                           stdout=subprocess.PIPE)
        for p in (self.dns, world):
            if p.stdout.readline() != b"ready\n":
                raise LabError("the world's servers did not start")
        self._sshd()
        self.wait(lambda: self.run("world", "curl", "-sf", "-m", "2",
                                   "http://203.0.113.10/").status == 0,
                  10, "nginx")

    def _git(self):
        d, env = self.dir, {**os.environ, "HOME": self.dir,
                            "GIT_CONFIG_NOSYSTEM": "1"}
        work, bare = d + "/work", d + "/git/project.git"
        with open(d + "/.gitconfig", "w") as f:
            f.write("[safe]\n\tdirectory = *\n[user]\n\tname = lab\n"
                    "\temail = lab@allowed.test\n[init]\n"
                    "\tdefaultBranch = main\n")
        sh("git", "init", "-q", work, env=env)
        with open(work + "/file", "w") as f:
            f.write("cloned\n")
        sh("git", "-C", work, "add", "file", env=env)
        sh("git", "-C", work, "commit", "-qm", "one", env=env)
        sh("git", "clone", "-q", "--bare", work, bare, env=env)

    def _sshd(self):
        d = self.dir
        for key in ("hostkey", "userkey"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
               d + "/" + key)
        shutil.copy(d + "/userkey.pub", d + "/authorized")
        os.chown(d + "/userkey", AGENT_UID, AGENT_UID)
        with open(d + "/sshd.conf", "w") as f:
            f.write("ListenAddress 203.0.113.10\nListenAddress "
                    "203.0.113.14\nListenAddress 192.0.2.1\n"
                    "HostKey %s/hostkey\nPidFile none\nUsePAM no\n"
                    "StrictModes no\n"
                    "AuthorizedKeysFile %s/authorized\n"
                    "ForceCommand echo shell-reached\n" % (d, d))
        # Its fixed directory, in a mount namespace of its own.
        self.start("world", "sh", "-c", "mount -t tmpfs none /run && "
                   "mkdir -m 755 /run/sshd && exec /usr/sbin/sshd -D -e -f "
                   "\"$0\"", d + "/sshd.conf", log="sshd.log")

    # ---- processes ----

    def start(self, space, *argv, env=None, stdout=None, log=None):
        out = open(os.path.join(self.dir, log), "ab") if log else None
        p = subprocess.Popen(
            ["ip", "netns", "exec", self.ns(space), *argv], env=env,
            stdin=subprocess.DEVNULL, stdout=stdout or out or
            subprocess.DEVNULL, stderr=out or subprocess.DEVNULL,
            start_new_session=True)
        self.children.append(p)
        return p

    def stop(self, p, how=signal.SIGTERM, patience=5):
        if p.poll() is None:
            p.send_signal(how)
            try:
                p.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        if p.stdout:
            p.stdout.close()
        if p in self.children:
            self.children.remove(p)

    def run(self, space, *argv, timeout=30, env=None, stdin=None):
        """A command as root in a namespace."""
        began = time.monotonic()
        p = subprocess.Popen(
            ["ip", "netns", "exec", self.ns(space), *argv], text=True,
            errors="replace", env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        try:
            out, err = p.communicate(stdin or "", timeout)
            status = p.returncode
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, err = p.communicate()
            status = "timeout"
        return Result(argv, status, out, err, time.monotonic() - began)

    AS_AGENT = ("setpriv", "--reuid", str(AGENT_UID), "--regid",
                str(AGENT_UID), "--clear-groups", "--no-new-privs",
                "--bounding-set", "-all", "--inh-caps", "-all", "--")

    def agent_env(self, **more):
        home = os.path.join(self.dir, "home")
        if not os.path.isdir(home):
            os.makedirs(home)
            os.chown(home, AGENT_UID, AGENT_UID)
        env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home,
               "LANG": "C.UTF-8", "CURL_CA_BUNDLE": self.ca,
               "SSL_CERT_FILE": self.ca, "GIT_SSL_CAINFO": self.ca,
               "REQUESTS_CA_BUNDLE": self.ca, "NODE_EXTRA_CA_CERTS": self.ca,
               "GIT_TERMINAL_PROMPT": "0"}
        env.update(more)
        return env

    def agent(self, *argv, timeout=30, env=None, stdin=None):
        """A command as the agent sees the world: its uid, no capability."""
        return self.run(self.agent_space, *self.AS_AGENT, *argv,
                        timeout=timeout, env=self.agent_env(**(env or {})),
                        stdin=stdin)

    def python(self, code, *args, timeout=30, env=None):
        return self.agent(PYTHON, "-c", code, *args, timeout=timeout, env=env)

    @property
    def agent_space(self):
        return "shared" if self.mode == "shared" else "agent"

    def proxy_env(self, user=None):
        at = "http://%s%s:15080" % (user + "@" if user else "",
                                    self.proxy_address)
        return {k: at for k in ("http_proxy", "https_proxy", "HTTP_PROXY",
                                "HTTPS_PROXY")}

    @property
    def proxy_address(self):
        return "127.0.0.1" if self.mode == "shared" else "198.18.0.1"

    def wait(self, what, seconds, name):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what():
                return
            time.sleep(0.05)
        raise LabError("%s: not there after %s s\n%s" % (name, seconds,
                                                         self.log()))

    # ---- penstock ----

    def unguarded(self, mode):
        """No penstock and no rules; the gateway only forwards."""
        self.down()
        self.mode, self.space = mode, \
            "shared" if mode == "shared" else "gateway"
        self.forward(mode == "gateway")

    def forward(self, on):
        for key in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            sh("ip", "netns", "exec", self.ns("gateway"), "sysctl", "-qw",
               "%s=%d" % (key, on))

    def config(self, mode, policy=POLICY, extra="", ipv6="drop", cells=None,
               credential=False, explicit=None):
        """`explicit`: the addresses of such listeners, in place of the
        mode's own; with credential that of the gateway on the agent's
        side."""
        if credential and explicit is None:
            explicit = ["198.18.0.1:15080"]
        d = tempfile.mkdtemp(prefix="conf-", dir=self.dir)
        os.chmod(d, 0o755)
        self.conf = os.path.join(d, "penstock.yaml")
        self.admin = os.path.join(d, "admin.sock")
        lines = ["version: 1", "mode: %s" % mode, "ipv6: %s" % ipv6,
                 "engines: 1", "admin: unix:%s" % self.admin]
        if mode == "gateway":
            lines += ["interfaces: [ag0]"]
        if mode == "gateway" and explicit is not None:
            lines += ["listeners:",
                      "  - {name: tproxy4, kind: tproxy, "
                      "address: \"0.0.0.0:15001\"}",
                      "  - {name: tproxy6, kind: tproxy, "
                      "address: \"[::]:15001\"}"]
            lines += ["  - {name: explicit%s, kind: explicit, address: "
                      "\"%s\"%s}" % (i or "", at, ", credential: true"
                                     if credential else "")
                      for i, at in enumerate(explicit)]
        lines += ["cells:", "  - id: agent-1", "    labels: {team: lab}",
                  "    policy: [policy.yaml]"]
        if cells is not None:
            lines += cells
        elif mode == "gateway":
            lines += ["    from: {cidr: 198.18.0.0/24}"] \
                if ipv6 == "drop" else ["    from: {interface: ag0}"]
        with open(self.conf, "w") as f:
            f.write("\n".join(lines) + "\n" + extra)
        self.policy = os.path.join(d, "policy.yaml")
        with open(self.policy, "w") as f:
            f.write(policy)
        return self.conf

    def verb(self, *argv, timeout=30):
        return self.run(self.space, self.binary, *argv, timeout=timeout)

    def up(self, mode, policy=POLICY, extra="", ipv6="drop", env=None,
           cells=None, credential=False, explicit=None):
        """penstock with its rules, ready."""
        self.unguarded(mode)        # and no plain proxy
        self.forward(False)
        self.config(mode, policy, extra, ipv6, cells, credential, explicit)
        r = self.run(self.space, self.binary, "rules", "apply", "-c",
                     self.conf)
        if r.status != 0:
            raise LabError("rules: %r" % r)
        self.serve(env=env)

    def serve(self, *argv, env=None, records=None):
        """Start penstock, until it is ready; `records` takes its records in
        place of a file, and then it need only serve."""
        self.starts += 1
        self.records_path = os.path.join(self.dir,
                                         "records.%d" % self.starts)
        self.log_path = os.path.join(self.dir, "log.%d" % self.starts)
        with open(records or self.records_path, "wb") as out, \
                open(self.log_path, "wb") as err:
            self.penstock = subprocess.Popen(
                ["ip", "netns", "exec", self.ns(self.space), self.binary,
                 "serve", "-c", self.conf, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, env=env, start_new_session=True)
        self.children.append(self.penstock)
        self.wait(self.ready if records is None else
                  lambda: 'msg="started ' in self.log(), 15, "penstock")

    def ready(self):
        if self.penstock.poll() is not None:
            raise LabError("penstock ended with %s\n%s" % (
                self.penstock.returncode, self.log()))
        return self.get("/readyz")[0] == 200

    def get(self, path):
        """GET from the admin socket: status and body; 0 when it is away."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(3)
        try:
            s.connect(self.admin)
            s.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n"
                      b"Connection: close\r\n\r\n" % path.encode())
            data = b""
            while True:
                part = s.recv(65536)
                if not part:
                    break
                data += part
        except OSError:
            return 0, ""
        finally:
            s.close()
        head, _, body = data.partition(b"\r\n\r\n")
        words = head.split(b" ")
        return int(words[1]) if len(words) > 1 else 0, body.decode()

    def without(self, *names):
        """Take these of the kernel's rules away, each by its comment."""
        for name in names:
            table = ("inet", "penstock", name.split("/")[0])
            r = self.run(self.space, "nft", "-a", "list", "chain", *table)
            found = re.findall(r'%s" # handle (\d+)' % name, r.out)
            if len(found) != 1:
                raise LabError("rule %s: %r" % (name, r))
            r = self.run(self.space, "nft", "delete", "rule", *table,
                         "handle", *found)
            if r.status != 0:
                raise LabError("rule %s: %r" % (name, r))

    def down(self):
        if self.plain_proxy is not None:
            self.stop(self.plain_proxy)
            self.plain_proxy = None
        if self.penstock is not None:
            self.stop(self.penstock)
            self.penstock = None
        for space in ("gateway", "shared"):
            if space in self.spaces:
                self.run(space, self.binary, "rules", "remove")

    def log(self):
        try:
            with open(self.log_path) as f:
                return f.read()[-4000:]
        except (OSError, AttributeError):
            return ""

    def records(self, **want):
        """The records so far that have these values."""
        found = []
        with open(self.records_path) as f:
            for line in f:
                if not line.startswith("{"):
                    continue
                r = json.loads(line)
                if all(r.get(k) == v for k, v in want.items()):
                    found.append(r)
        return found

    def record(self, seconds=3, **want):
        """The newest record with these values, when it has come."""
        end = time.monotonic() + seconds
        while True:
            found = self.records(**want)
            if found:
                return found[-1]
            if time.monotonic() > end:
                raise LabError("no record with %r among\n%s" % (
                    want, "\n".join(json.dumps(r) for r in
                                    self.records()[-12:])))
            time.sleep(0.05)

    def seen(self, **want):
        """What the world's servers saw, by their own logs."""
        found = []
        for name in ("seen", "logs/access"):
            with open(os.path.join(self.dir, name)) as f:
                found += [json.loads(line) for line in f
                          if line.endswith("\n")]
        return [r for r in found
                if all(r.get(k) == v for k, v in want.items())]

    @staticmethod
    def still(logs):
        """The sizes of the logs once nothing is written any more: a server
        tells of a request after its client has gone."""
        sizes = [os.path.getsize(n) for n in logs]
        for _ in range(20):
            time.sleep(0.05)
            now = [os.path.getsize(n) for n in logs]
            if now == sizes:
                break
            sizes = now
        return sizes

    def watched(self, attempt, expect=False):
        """An attempt, and what of it arrived at the world's servers."""
        logs = [os.path.join(self.dir, n) for n in ("seen", "logs/access")]
        before = self.still(logs)
        r = attempt(self)
        end = time.monotonic() + (1 if expect else 0.03)
        while True:
            r.arrived = []
            for name, at in zip(logs, before):
                with open(name) as f:
                    f.seek(at)
                    r.arrived += [json.loads(line) for line in f
                                  if line.endswith("\n")]
            if time.monotonic() > end or (expect and r.arrived):
                return r
            time.sleep(0.02)

    def plain(self):
        """The same listener without a policy, until down()."""
        self.plain_proxy = self.start(self.space, PYTHON, HERE +
                                      "/plainproxy.py", "15080", "15001",
                                      stdout=subprocess.PIPE)
        if self.plain_proxy.stdout.readline() != b"ready\n":
            raise LabError("the plain proxy did not start")

    def asked(self, name):
        """How often the world's DNS server was asked for this name."""
        with open(os.path.join(self.dir, "asked")) as f:
            return sum(json.loads(line)["name"] == name for line in f
                       if line.endswith("\n"))

    # ---- the end ----

    def close(self):
        for p in reversed(list(self.children)):
            with contextlib.suppress(Exception):
                self.stop(p, patience=2)
        for name in reversed(self.spaces):
            self._empty(name)
            sh("ip", "netns", "del", self.ns(name), check=False)
            shutil.rmtree("/etc/netns/" + self.ns(name), ignore_errors=True)
        self.spaces = []
        with contextlib.suppress(OSError):
            os.rmdir("/etc/netns")
        shutil.rmtree(self.dir, ignore_errors=True)

    def _empty(self, name):
        """End what still runs inside a namespace of ours."""
        r = sh("ip", "netns", "pids", self.ns(name), check=False)
        for pid in r.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


NGINX = """\
user root;
worker_processes 1;
pid @DIR@/nginx.pid;
events { worker_connections 1024; }
http {
	log_format lines escape=json '{"what": "nginx", "host": "$host", '
		'"addr": "$server_addr", "port": "$server_port", '
		'"line": "$request", "sni": "$ssl_server_name"}';
	access_log @DIR@/logs/access lines;
	client_body_temp_path @DIR@/tmp; proxy_temp_path @DIR@/tmp;
	fastcgi_temp_path @DIR@/tmp; uwsgi_temp_path @DIR@/tmp;
	scgi_temp_path @DIR@/tmp;
	server {
		listen 203.0.113.10:80; listen 203.0.113.11:80;
		listen 203.0.113.10:8080;
		listen 203.0.113.15:8081 proxy_protocol;
		listen 203.0.113.15:8082;
		listen 203.0.113.66:80; listen 203.0.113.66:443 ssl;
		listen 10.9.9.9:80; listen 169.254.169.254:80;
		listen 192.0.2.1:80;
		listen [2001:db8:113::10]:80;
		listen 203.0.113.10:443 ssl; listen 203.0.113.11:443 ssl;
		listen 10.9.9.9:443 ssl; listen 169.254.169.254:443 ssl;
		listen [2001:db8:113::10]:443 ssl;
		ssl_certificate @DIR@/srv.pem; ssl_certificate_key @DIR@/srv.key;
		root @DIR@/www;
		location = / {
			default_type text/plain;
			return 200 "reached $host at $server_addr via $http_via\\n";
		}
		location = /auth {
			default_type text/plain;
			return 200 "reached $http_via auth $http_proxy_authorization\\n";
		}
		location /upload {
			client_max_body_size 64m;
			default_type text/plain;
			return 200 "took $content_length\\n";
		}
		location /git/ {
			client_max_body_size 0;
			include /etc/nginx/fastcgi_params;
			fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend;
			fastcgi_param GIT_PROJECT_ROOT @DIR@/git;
			fastcgi_param GIT_HTTP_EXPORT_ALL "";
			fastcgi_param HOME @DIR@;
			fastcgi_param REMOTE_USER lab;
			fastcgi_split_path_info ^(/git)(/.*)$;
			fastcgi_param PATH_INFO $fastcgi_path_info;
			fastcgi_pass unix:@DIR@/fcgi.sock;
		}
		location /simple/ { autoindex on; default_type text/html; }
		location /npm/ { default_type application/json; }
	}
	# one that takes HTTP/2, for each name
	server {
		listen 203.0.113.21:443 ssl http2;
		ssl_certificate @DIR@/srv.pem; ssl_certificate_key @DIR@/srv.key;
		default_type text/plain;
		return 200 "reached $host at $server_addr\\n";
	}
	# one whose clients must say hello twice
	server {
		listen 203.0.113.14:443 ssl;
		ssl_ecdh_curve secp384r1;
		ssl_protocols TLSv1.3;
		ssl_certificate @DIR@/srv.pem; ssl_certificate_key @DIR@/srv.key;
		default_type text/plain;
		return 200 "reached $ssl_server_name at $server_addr\\n";
	}
}
"""


def main():
    """Build the lab and say so: a check of the lab itself."""
    with Lab() as lab:
        lab.unguarded("gateway")
        print(lab.agent("curl", "-s", "https://allowed.test/"))
        lab.unguarded("shared")
        print(lab.agent("curl", "-s", "https://allowed.test/"))


if __name__ == "__main__":
    sys.exit(main())
