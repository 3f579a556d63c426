# SPDX-License-Identifier: Apache-2.0
"""The same questions to penstock and to unbound, over one authority: what both
are told must be the same, but for what the policy or a bound makes another.
Each such difference stands below by name, with its reason and what penstock
says in place of it; so does what not every unbound says.
"""
import os
import struct
import time

import pytest

from lab import NAMES, PYTHON, script

PEER = "203.0.113.66"

A, NS, CNAME, SOA, PTR, HINFO, MX, TXT, AAAA, SRV = 1, 2, 5, 6, 12, 13, 15, \
    16, 28, 33
OPT, SVCB, HTTPS, ANY, CAA = 41, 64, 65, 255, 257
NULL, AXFR = 10, 252
TYPES = {v: k for k, v in list(globals().items()) if isinstance(v, int)}
OK, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)

POLICY = """\
version: 1
network:
  default: deny
  enforce: strict
  resolvers: [203.0.113.53]
  lab: [203.0.113.0/24, "2001:db8:113::/64"]
  rule:
    - {verdict: allow, hostname: "*.diff.test", id: all,
       dns: [NS, CNAME, SOA, PTR, MX, TXT, SRV, CAA]}
    - {verdict: allow, hostname: "*.113.0.203.in-addr.arpa", dns: [PTR]}
    - {verdict: allow, hostname: plain.test}
"""

UNBOUND = """\
server:
  directory: "%(dir)s"
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  logfile: ""
  do-daemonize: no
  num-threads: 1
  interface: %(peer)s
  access-control: 0.0.0.0/0 allow
  module-config: "iterator"
  minimal-responses: yes
  edns-buffer-size: 1232
  max-udp-size: 1232
  do-ip6: no
  target-fetch-policy: "0 0 0 0 0"
  local-zone: "test." nodefault
  local-zone: "113.0.203.in-addr.arpa." nodefault
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: 203.0.113.53
"""


# ---- the zone ----

def wire(name):
    return b"".join(bytes([len(x)]) + x.encode()
                    for x in name.split(".") if x) + b"\0"


def text(*strings):
    return b"".join(bytes([len(s)]) + s for s in strings)


def raw(**types):
    """Records by type, from their data."""
    return {"raw": {str(globals()[t]): [d.hex() for d in data]
                    for t, data in types.items()}}


def zone():
    z = {
        "plain.test": {"A": ["203.0.113.10"]},
        "dual.diff.test": {"A": ["203.0.113.10", "203.0.113.11"],
                           "AAAA": ["2001:db8:113::10"]},
        "four.diff.test": {"A": ["203.0.113.10"]},
        "six.diff.test": {"AAAA": ["2001:db8:113::10"]},
        "ent.diff.test": {},
        "below.ent.diff.test": {"A": ["203.0.113.10"]},
        "*.wild.diff.test": {"A": ["203.0.113.12"],
                             "TXT": ["of a wildcard"]},
        "own.wild.diff.test": {"TXT": ["its own"]},
        "alias1.diff.test": {"CNAME": "dual.diff.test"},
        "gone.diff.test": {"CNAME": "nothing.diff.test"},
        "bare.diff.test": {"CNAME": "ent.diff.test"},
        "outside.diff.test": {"CNAME": "plain.test"},
        "loop.diff.test": {"CNAME": "pool.diff.test"},
        "pool.diff.test": {"CNAME": "loop.diff.test"},
        "self.diff.test": {"CNAME": "self.diff.test"},
        "open.diff.test": {"CNAME": "open2.diff.test", "alone": True},
        "open2.diff.test": {"CNAME": "dual.diff.test", "alone": True,
                            "ttl": 20},
        "broken.diff.test": {"rcode": "SERVFAIL"},
        "refuses.diff.test": {"rcode": "REFUSED"},
        "long.diff.test": {"A": ["203.0.113.10"], "truncate": True},
        "private.diff.test": {"A": ["10.9.9.9", "203.0.113.10"]},
        "metadata.diff.test": {"A": ["169.254.169.254"]},
        "mapped.diff.test": {"AAAA": ["::ffff:10.9.9.9"]},
        "ttl0.diff.test": {"A": ["203.0.113.10"], "ttl": 0},
        "ttl1.diff.test": {"A": ["203.0.113.10"], "ttl": 1},
        "ttlday.diff.test": {"A": ["203.0.113.10"], "ttl": 86400},
        "ttlweek.diff.test": {"A": ["203.0.113.10"], "ttl": 604800},
        "ttlmost.diff.test": {"A": ["203.0.113.10"], "ttl": 0x7fffffff},
        "ttlsign.diff.test": {"A": ["203.0.113.10"], "ttl": 0x80000000},
        "in.empty0.diff.test": {"ttl": 0},
        "in.emptylong.diff.test": {"ttl": 86400},
        "mixed.diff.test": {"CNAME": "ttl20.diff.test", "ttl": 300},
        "ttl20.diff.test": {"A": ["203.0.113.10"], "ttl": 20},
        "mx.diff.test": raw(MX=[struct.pack(">H", n) + wire(h) for n, h in (
            (10, "a.diff.test"), (20, "b.diff.test"), (0, ""))]),
        "mxalias.diff.test": {"CNAME": "mx.diff.test"},
        "_sip._tcp.diff.test": raw(SRV=[struct.pack(">3H", 1, 2, 5060) +
                                        wire("sip.diff.test")]),
        "sub.diff.test": raw(
            NS=[wire("ns1.diff.test"), wire("ns2.diff.test")],
            SOA=[wire("ns1.diff.test") + wire("host.diff.test") +
                 struct.pack(">5I", 7, 3600, 600, 86400, 30)]),
        "caa.diff.test": raw(CAA=[b"\0\5issueca.test", b"\x80\3tbsx"]),
        "https.diff.test": raw(
            HTTPS=[b"\0\1\0" + b"\0\1\0\3\2h2"],
            SVCB=[b"\0\1" + wire("four.diff.test")]),
        "txt.diff.test": raw(TXT=[text(b"one"), text(b"two", b"strings"),
                                  text(b""), text(b"x" * 255, b"y" * 255),
                                  text(b"\0\xff\"\\")]),
        "twice.diff.test": raw(TXT=[text(b"same"), text(b"same")]),
        "hinfo.diff.test": raw(HINFO=[text(b"CPU", b"OS")]),
        "null.diff.test": raw(NULL=[b"carries"]),
        "10.113.0.203.in-addr.arpa": raw(PTR=[wire("four.diff.test")]),
        "under_score.diff.test": {"A": ["203.0.113.10"]},
        "xn--bcher-kva.diff.test": {"A": ["203.0.113.10"]},
        "-hyphen-.diff.test": {"A": ["203.0.113.10"]},
        "two words.diff.test": {"A": ["203.0.113.10"]},
        LONGEST: {"A": ["203.0.113.10"]},
        DEEPEST: {"A": ["203.0.113.10"]},
    }
    for n in (20, 32, 33, 40):
        z["a%d.diff.test" % n] = {"A": ["203.0.113.%d" % (100 + i)
                                        for i in range(n)]}
    for n, size in ((4, 200), (20, 200), (64, 200), (65, 200), (60, 1000)):
        z["t%dx%d.diff.test" % (n, size)] = raw(TXT=[
            text(*[b"%03d" % i + b"z" * 247] * (size // 250 or 1))
            for i in range(n)])
    for n in (3, 8, 11, 12, 16, 17):
        for i in range(n):
            z["c%dof%d.diff.test" % (i, n)] = {
                "CNAME": "c%dof%d.diff.test" % (i + 1, n)}
        z["c%dof%d.diff.test" % (n, n)] = {"A": ["203.0.113.10"]}
    return z


LONGEST = ".".join(["l" * 63] * 3 + ["m" * 51, "diff.test"])
DEEPEST = ".".join(["d"] * 122 + ["diff.test"])


# ---- questions ----

class Question:
    def __init__(self, name, kind=A, via="udp", label=None, **form):
        self.name, self.kind, self.via, self.form = name, kind, via, form
        self.id = label or "-".join(
            [name, TYPES.get(kind, str(kind))] + [via] * (via != "udp") +
            ["%s=%s" % kv for kv in form.items()])

    def message(self):
        f = self.form
        bits = f.get("opcode", 0) << 11 | f.get("tc", 0) << 9 | \
            f.get("rd", 1) << 8 | f.get("ad", 0) << 5 | f.get("cd", 0) << 4
        one = wire(self.name) + struct.pack(">HH", self.kind,
                                            f.get("klass", 1))
        edns = "edns" in f
        out = struct.pack(">6H", 4711, bits, f.get("count", 1), 0, 0, edns)
        out += one * f.get("count", 1)
        if edns:
            out += b"\0" + struct.pack(
                ">HHIH", OPT, f["edns"], f.get("version", 0) << 16 |
                f.get("do", 0) << 15, 0)
        return out + f.get("behind", b"")


Q = Question
QUESTIONS = [
    Q(n, k) for n, kinds in {
        "dual.diff.test": (A, AAAA, MX, TXT, HTTPS),
        "four.diff.test": (A, AAAA), "six.diff.test": (A, AAAA),
        "plain.test": (A,),
        "nothing.diff.test": (A, AAAA, TXT, MX),
        "ent.diff.test": (A, AAAA, TXT), "below.ent.diff.test": (A,),
        "x.wild.diff.test": (A, AAAA, TXT), "y.x.wild.diff.test": (A,),
        "own.wild.diff.test": (A, TXT), "wild.diff.test": (A,),
        "alias1.diff.test": (A, AAAA, CNAME, TXT),
        "gone.diff.test": (A, CNAME, MX), "bare.diff.test": (A,),
        "outside.diff.test": (A,), "open.diff.test": (A, AAAA, CNAME),
        "loop.diff.test": (A, CNAME), "self.diff.test": (A,),
        "broken.diff.test": (A, TXT), "refuses.diff.test": (A,),
        "long.diff.test": (A,), "private.diff.test": (A,),
        "metadata.diff.test": (A,), "mapped.diff.test": (AAAA,),
        "mx.diff.test": (MX, A), "mxalias.diff.test": (MX,),
        "_sip._tcp.diff.test": (SRV,), "_tcp.diff.test": (SRV,),
        "sub.diff.test": (NS, SOA, A), "caa.diff.test": (CAA,),
        "https.diff.test": (HTTPS, SVCB), "txt.diff.test": (TXT,),
        "twice.diff.test": (TXT,), "hinfo.diff.test": (HINFO,),
        "null.diff.test": (NULL,), "10.113.0.203.in-addr.arpa": (PTR,),
        "11.113.0.203.in-addr.arpa": (PTR,),
        "under_score.diff.test": (A,), "xn--bcher-kva.diff.test": (A,),
        "-hyphen-.diff.test": (A,), "two words.diff.test": (A,),
        "denied.test": (A,),
        **{"ttl%s.diff.test" % t: (A,) for t in
           ("0", "1", "day", "week", "most", "sign")},
        "mixed.diff.test": (A,), "in.empty0.diff.test": (A,),
        "in.emptylong.diff.test": (A,),
        **{"c0of%d.diff.test" % n: (A,) for n in (3, 8, 11, 12, 16, 17)},
        **{"a%d.diff.test" % n: (A,) for n in (20, 32, 33, 40)},
        **{"t%dx%d.diff.test" % ns: (TXT,) for ns in
           ((4, 200), (20, 200), (64, 200), (65, 200), (60, 1000))},
    }.items() for k in kinds
] + [
    Q(n, k, "tcp") for n, k in (
        ("dual.diff.test", A), ("nothing.diff.test", A),
        ("ent.diff.test", A), ("c0of8.diff.test", A),
        ("txt.diff.test", TXT), ("long.diff.test", A))
] + [
    Q(LONGEST, A, label="longest-name"), Q(DEEPEST, A, label="most-labels"),
    Q("DUAL.Diff.TeST"), Q("ALIAS1.diff.TEST"), Q("NOTHING.DIFF.test"),
    Q("tXt.DiFF.test", TXT), Q("X.WILD.diff.test"),
    *[Q("dual.diff.test", **form) for form in (
        {"rd": 0}, {"cd": 1}, {"ad": 1}, {"edns": 512}, {"edns": 1232},
        {"edns": 4096}, {"edns": 0}, {"edns": 1232, "do": 1},
        {"edns": 1232, "version": 1}, {"klass": 3}, {"klass": 255},
        {"klass": 254}, {"opcode": 2}, {"opcode": 4}, {"opcode": 5},
        {"count": 0}, {"count": 2}, {"behind": b"\0"}, {"tc": 1})],
    *[Q(n, k, edns=size) for n, k in (
        ("a40.diff.test", A), ("a32.diff.test", A), ("t4x200.diff.test", TXT),
        ("t20x200.diff.test", TXT), ("txt.diff.test", TXT))
      for size in (100, 512, 600, 1232, 4096, 65535)],
    Q("nothing.diff.test", edns=1232), Q("gone.diff.test", edns=1232),
    Q("dual.diff.test", ANY), Q("dual.diff.test", AXFR),
    Q("dual.diff.test", OPT), Q("dual.diff.test", 0), Q("", A),
    Q("dual.diff.test", 65280),
]


# ---- replies ----

NAMES_AT = {NS: (0, 1), CNAME: (0, 1), PTR: (0, 1), MX: (2, 1), SRV: (6, 1),
            SOA: (0, 2)}


def name_at(msg, at):
    labels, end, hops = [], None, 0
    while msg[at]:
        if msg[at] >= 0xc0:
            end = end or at + 2
            at = (msg[at] & 63) << 8 | msg[at + 1]
            hops += 1
            assert hops < 100
            continue
        labels.append(msg[at + 1:at + 1 + msg[at]].decode("latin-1"))
        at += 1 + msg[at]
    return ".".join(labels), end or at + 1


class Reply:
    """What of a reply clients go by."""

    def __init__(self, msg):
        self.msg = msg
        self.id, bits, n_q, *counts = struct.unpack(">6H", msg[:12])
        self.rcode = bits & 15
        self.flags = {k: bits >> at & 1 for k, at in (
            ("qr", 15), ("aa", 10), ("tc", 9), ("rd", 8), ("ra", 7),
            ("ad", 5), ("cd", 4))}
        self.flags["opcode"] = bits >> 11 & 15
        at, self.questions = 12, []
        for _ in range(n_q):
            name, at = name_at(msg, at)
            self.questions.append((name, msg[at:at + 4]))
            at += 4
        self.edns = None
        self.sections = []
        for n in counts:
            self.sections.append([])
            for _ in range(n):
                at = self.read(at, self.sections[-1])
        assert at == len(msg), "bytes behind the reply"

    def read(self, at, out):
        msg = self.msg
        owner, at = name_at(msg, at)
        kind, klass, ttl, size = struct.unpack(">HHIH", msg[at:at + 10])
        at += 10
        if kind == OPT:
            self.edns = klass
            self.rcode |= ttl >> 24 << 4
            self.flags["do"] = ttl >> 15 & 1
        else:
            out.append((owner, kind, ttl, self.data(at, size, kind)))
        return at + size

    def data(self, at, size, kind):
        head, names = NAMES_AT.get(kind, (size, 0))
        end = at + size
        out = [self.msg[at:at + head]]
        at += head
        for _ in range(names):
            one, at = name_at(self.msg, at)
            out.append(one.lower())
        return tuple(out + [self.msg[at:end]])

    @property
    def answers(self):
        return sorted((o.lower(), k, d) for o, k, _, d in self.sections[0])

    @property
    def ttls(self):
        return [t for _, _, t, _ in self.sections[0]]

    @property
    def no_ttl(self):
        """How long a no may be kept (RFC 2308 5)."""
        for _, kind, ttl, data in self.sections[1]:
            if kind == SOA:
                return min(ttl, struct.unpack(">I", data[-1][-4:])[0])
        return None

    def __repr__(self):
        return "rcode %s flags %s edns %s\n    answers %s\n    no for %s" % (
            self.rcode, self.flags, self.edns, sorted(
                (o, k, t, d) for o, k, t, d in self.sections[0])[:8],
            self.no_ttl)


# ---- what differs ----

def told(rcode, records=0, **more):
    """Penstock's rcode, how many records it gives, and other fields."""
    def check(r):
        assert (r.rcode, len(r.answers)) == (rcode, records), r
        for key, value in more.items():
            assert r.flags[key] == value, r
    return check


TYPE = "of types that no rule opens there is nothing"
ECH = "nobody learns keys to hide a name with"
PRIVATE = "an allowed name opens no private address"
BOUND = "32 addresses and 64 records of a name are kept"
MANY = "16 aliases are followed, by unbound 11"
FORM = "what is not of the Internet or no record is refused"
NONE = "the header alone: the question was not read"

# Why, and what penstock says.
DIFFERENT = {
    "dual.diff.test-HTTPS": (ECH + ": a no of its own", told(OK)),
    "https.diff.test-HTTPS": (ECH, told(OK)),
    "https.diff.test-SVCB": (ECH, told(OK)),
    "hinfo.diff.test-HINFO": (TYPE, told(OK)),
    "dual.diff.test-65280": (TYPE + ": a no of its own", told(OK)),
    "null.diff.test-NULL": ("NULL is good for nothing but a tunnel",
                            told(REFUSED)),
    "dual.diff.test-ANY": ("RFC 8482: one record that says so",
                           told(OK, 1)),
    "private.diff.test-A": (PRIVATE, told(OK, 1)),
    "metadata.diff.test-A": (PRIVATE, told(OK)),
    "mapped.diff.test-AAAA": (PRIVATE + ", in whatever form", told(OK)),
    "two words.diff.test-A": ("no rule allows what is no host name",
                              told(OK)),
    "denied.test-A": ("a no of its own for what the policy denies",
                      told(OK, 1)),
    "-A": ("the root is nobody's to connect to", told(OK)),
    "twice.diff.test-TXT": ("RFC 2181 5: a set has no record twice",
                            told(OK, 1)),
    "c0of12.diff.test-A": (MANY, told(OK, 13)),
    "c0of16.diff.test-A": (MANY, None),
    "a33.diff.test-A": (BOUND, None),
    "a40.diff.test-A": (BOUND, None),
    **{"a40.diff.test-A-edns=%d" % n: (BOUND, None) for n in (100, 512)},
    **{"a40.diff.test-A-edns=%d" % n: (BOUND, told(OK, 32))
       for n in (600, 1232, 4096, 65535)},
    "t65x200.diff.test-TXT": (BOUND, None),
    "dual.diff.test-A-rd=0": ("the policy decides, not what is cached: RD "
                              "is only echoed", told(OK, 2, rd=0)),
    "dual.diff.test-A-edns=1232-do=1": (
        "no signatures are served: RFC 3225 3", told(OK, 2, do=0)),
    "dual.diff.test-A-klass=255": (FORM, told(REFUSED)),
    "dual.diff.test-OPT": (FORM + ", by unbound as FORMERR", told(REFUSED)),
    "dual.diff.test-0": (FORM, told(REFUSED)),
    "dual.diff.test-AXFR": (FORM + ", by unbound without RA",
                            told(REFUSED, ra=1)),
    "dual.diff.test-A-opcode=2": ("unbound says so without RA",
                                  told(NOTIMP, ra=1)),
    "dual.diff.test-A-opcode=5": ("unbound says so without RA",
                                  told(NOTIMP, ra=1)),
    "dual.diff.test-A-opcode=4": ("unbound knows NOTIFY, and refuses it",
                                  told(NOTIMP)),
    "dual.diff.test-A-behind=b'\\x00'": (
        NONE + ": bytes behind the question", told(FORMERR)),
    "dual.diff.test-A-tc=1": ("TC says nothing of a question",
                              told(OK, 2, tc=0)),
}
# In which versions of unbound do not agree, and what penstock says.
VERSIONS = {
    # RFC 2181 8: none; RFC 8767 4 and unbound 1.26: as long as any
    "ttlsign.diff.test-A": told(OK, 1),
    "dual.diff.test-A-count=2": told(FORMERR),  # 1.17: the header alone
}
# Where the agents' IPv6 is refused, names have no address of it.
DROPPED = {q.id for q in QUESTIONS if q.kind == AAAA}


def zone_ttl(q, records):
    """The least that the authority gives these records' owners."""
    has = {n.lower(): e.get("ttl", 60) for n, e in zone().items()}
    ttls = [has.get(o, 60) for o, _, _ in records]
    return min((0 if t >> 31 else min(t, 86400) for t in ttls), default=0)


def differences(q, p, u, elapsed):
    """In which ways the replies differ to whoever asked."""
    if p is None or u is None:
        return [] if p is u else ["one is silent"]
    out = [k for k in ("id", "rcode", "flags", "questions", "edns")
           if getattr(p, k) != getattr(u, k)]
    if p.flags["tc"] or u.flags["tc"]:
        return out      # asked again over TCP
    if p.answers != u.answers:
        out.append("answers")
    if p.answers and u.answers and \
            abs(min(p.ttls) - min(u.ttls)) > elapsed + 1:
        out.append("ttl")
    if (p.no_ttl is None) != (u.no_ttl is None) or \
            abs((p.no_ttl or 0) - (u.no_ttl or 0)) > elapsed + 1:
        out.append("how long a no lasts")
    return out


# ---- asking ----

def ask(lab, where, questions):
    lines = "".join("%s %s\n" % (via, q.message().hex())
                    for q, via in questions)
    if where == "penstock":
        r = lab.run(lab.agent_space, *lab.AS_AGENT, PYTHON,
                    script("dnsasker.py"), "203.0.113.53", stdin=lines,
                    timeout=120)
    else:
        r = lab.run("world", PYTHON, script("dnsasker.py"), PEER,
                    stdin=lines, timeout=120)
    out = r.out.split("\n")
    assert len(out) == len(questions) + 1, r
    return [None if x == "-" else Reply(bytes.fromhex(x)) for x in out[:-1]]


class Both:
    """All replies of both: at first, from the cache, and over TCP where one
    was cut."""

    def __init__(self, lab):
        self.got, began = {}, time.monotonic()
        for turn in ("first", "again"):
            self.turn(lab, turn, [(q, q.via) for q in QUESTIONS])
        self.turn(lab, "whole", [(q, "tcp") for q in QUESTIONS
                                 if self.is_cut(q)])
        self.elapsed = time.monotonic() - began

    def turn(self, lab, turn, questions):
        for where in ("penstock", "unbound"):
            replies = ask(lab, where, questions)
            for (q, _), r in zip(questions, replies):
                self.got[turn, where, q.id] = r

    def is_cut(self, q):
        return any(r is not None and r.flags["tc"] for (_, _, i), r in
                   self.got.items() if i == q.id)

    def pairs(self, q):
        for turn in ("first", "again", "whole"):
            if (turn, "penstock", q.id) in self.got:
                yield [self.got[turn, where, q.id]
                       for where in ("penstock", "unbound")]


def unbound(lab):
    conf = os.path.join(lab.dir, "unbound.conf")
    with open(conf, "w") as f:
        f.write(UNBOUND % {"dir": lab.dir, "peer": PEER})
    p = lab.start("world", "unbound", "-d", "-c", conf, log="unbound.log")
    line = "udp %s\n" % Q("plain.test").message().hex()
    lab.wait(lambda: lab.run("world", PYTHON, script("dnsasker.py"), PEER,
                             stdin=line).out.strip() not in ("", "-"), 10,
             "unbound")
    return p


@pytest.fixture(scope="module", params=["drop", "proxy"])
def both(request, lab):
    lab.names({n: {"ttl": 60, **has} for n, has in zone().items()})
    lab.up("gateway", POLICY, ipv6=request.param)
    peer = unbound(lab)
    made = Both(lab)
    made.ipv6 = request.param
    yield made
    lab.stop(peer)
    lab.down()
    lab.names(NAMES)


@pytest.mark.parametrize("q", QUESTIONS, ids=lambda q: q.id)
def test_both_say_the_same(both, q):
    pairs = list(both.pairs(q))
    found = [differences(q, p, u, both.elapsed) for p, u in pairs]
    shown = "\n".join("%s\n  penstock %s\n  unbound %s" % (f, p, u)
                      for f, (p, u) in zip(found, pairs))
    why, check = DIFFERENT.get(q.id, (None, None))
    if both.ipv6 == "drop" and q.id in DROPPED:
        why, check = "IPv6 is refused", told(OK)
    if q.id in VERSIONS:
        for p, _ in pairs:
            VERSIONS[q.id](p)
        return
    if why is None:
        assert not any(found), shown
        return
    assert any(found), "no different any more: %s\n%s" % (why, shown)
    for p, _ in pairs:
        if check is not None:
            check(p)


@pytest.mark.parametrize("q", QUESTIONS, ids=lambda q: q.id)
def test_no_record_lasts_longer_than_the_authority_says(both, q):
    for p, _ in both.pairs(q):
        if p is not None and p.answers and q.kind != ANY:
            assert max(p.ttls) <= zone_ttl(q, p.answers), p


def test_questions_are_told_apart():
    ids = [q.id for q in QUESTIONS]
    assert len(set(ids)) == len(ids), [i for i in ids if ids.count(i) > 1]
    for listed in (DIFFERENT, VERSIONS):
        assert listed.keys() <= set(ids), listed.keys() - set(ids)
    assert not DIFFERENT.keys() & VERSIONS.keys()
