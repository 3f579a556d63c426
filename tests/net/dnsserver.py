#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An authoritative DNS server to be scripted: dnsserver.py ADDR PORT ZONE LOG

ZONE is JSON: {"name": {"A": [...], "AAAA": [...], "CNAME": "other",
"TXT": ["text"],
"MX": ["host"], "raw": {"65": ["hex of rdata"]}, "ttl": 60, "rcode": "NXDOMAIN"|"SERVFAIL"|"REFUSED", "timeout": true,
"delay": 0.2, "truncate": true, "alone": true}}; "*.name" answers what is below
it and has no entry, "*" everything else, otherwise NXDOMAIN.  "truncate" is for
UDP only, where a long answer is cut by itself; the alias of one with "alone" is
not followed; "turns", lists of A, are given one after the other.  SIGHUP reads ZONE again.  Each query is a JSON line of LOG,
flushed before the answer leaves.  Prints "ready".
"""
import json
import signal
import socket
import socketserver
import struct
import sys
import threading
import time

TYPES = {"A": 1, "CNAME": 5, "SOA": 6, "MX": 15, "TXT": 16, "AAAA": 28}
NAMES = {v: k for k, v in TYPES.items()}
RCODES = {"NOERROR": 0, "SERVFAIL": 2, "NXDOMAIN": 3, "REFUSED": 5}
zone, lock = {}, threading.Lock()


def wire(name):
    labels = [x for x in name.strip(".").split(".") if x]
    return b"".join(bytes([len(x)]) + x.encode() for x in labels) + b"\0"


def question(msg):
    at, labels = 12, []
    while msg[at]:
        labels.append(msg[at + 1:at + 1 + msg[at]].decode("latin-1"))
        at += 1 + msg[at]
    qtype, _ = struct.unpack("!HH", msg[at + 1:at + 5])
    return ".".join(labels).lower(), qtype, msg[12:at + 5]


def record(name, kind, ttl, data):
    return wire(name) + struct.pack("!HHIH", TYPES.get(kind, kind), 1, ttl,
                                    len(data)) + data


def entry(name):
    found = zone.get(name)
    while found is None and name:
        name = name.partition(".")[2]
        found = zone.get("*." + name) if name else zone.get("*")
    return found if found is not None else {"rcode": "NXDOMAIN"}


def room(msg, at):
    """How long a datagram may be (RFC 6891 6.2.3)."""
    if msg[10:12] == b"\0\0" or msg[at:at + 3] != b"\0\0\x29":
        return 512
    return max(512, min(4096, struct.unpack("!H", msg[at + 3:at + 5])[0]))


def turn(e):
    """Another list of addresses for each question."""
    with lock:
        e["turn"] = e.get("turn", -1) + 1
    return e["turns"][e["turn"] % len(e["turns"])]


def answers(name, qtype):
    """The records, the rcode, the name that the aliases lead to, and whether
    it has any of the type or another server knows."""
    out, hops = [], 0
    e = entry(name)
    while "CNAME" in e and hops < 20:
        out.append(record(name, "CNAME", e.get("ttl", 60), wire(e["CNAME"])))
        if e.get("alone") or qtype == TYPES["CNAME"]:
            return out, 0, name, True
        name, hops = e["CNAME"], hops + 1
        e = entry(name)
    kind, links = NAMES.get(qtype), len(out)
    if kind in ("A", "AAAA"):
        family = socket.AF_INET if kind == "A" else socket.AF_INET6
        has = turn(e) if kind == "A" and "turns" in e else e.get(kind, [])
        for a in has:
            out.append(record(name, kind, e.get("ttl", 60),
                              socket.inet_pton(family, a)))
    for text in e.get("TXT", []) if kind == "TXT" else []:
        out.append(record(name, kind, e.get("ttl", 60),
                          bytes([len(text)]) + text.encode()))
    for host in e.get("MX", []) if kind == "MX" else []:
        out.append(record(name, kind, e.get("ttl", 60),
                          struct.pack("!H", 10) + wire(host)))
    for data in e.get("raw", {}).get(str(qtype), []):
        out.append(record(name, qtype, e.get("ttl", 60),
                          bytes.fromhex(data)))
    return out, RCODES[e.get("rcode", "NOERROR")], name, len(out) > links


def reply(msg, over):
    name, qtype, q = question(msg)
    with lock:
        log.write(json.dumps({"name": name, "type": NAMES.get(qtype, qtype),
                              "over": over, "time": time.time()}) + "\n")
        log.flush()
    e = entry(name)
    if e.get("timeout"):
        return None
    time.sleep(e.get("delay", 0))
    out, rcode, owner, found = answers(name, qtype)
    soa = b""
    if not found:
        ttl = entry(owner).get("ttl", 60)
        soa = record(owner.partition(".")[2], "SOA", ttl, wire("ns") +
                     wire("host") + struct.pack("!5I", 1, 60, 60, 60, ttl))
    flags = 0x8400 | (msg[2] & 1) << 8 | rcode
    long = sum(map(len, out)) + len(soa) > room(msg, 12 + len(q)) - 12 - len(q)
    if over == "udp" and (long or e.get("truncate")):
        flags, out, soa = flags | 0x200, [], b""
    return msg[:2] + struct.pack("!5H", flags, 1, len(out), bool(soa),
                                 0) + q + b"".join(out) + soa


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        msg, sock = self.request
        out = reply(msg, "udp")
        if out:
            sock.sendto(out, self.client_address)


class Tcp(socketserver.StreamRequestHandler):
    def handle(self):
        while len(head := self.rfile.read(2)) == 2:
            msg = self.rfile.read(struct.unpack("!H", head)[0])
            out = reply(msg, "tcp")
            if out:
                self.wfile.write(struct.pack("!H", len(out)) + out)


def load(*_):
    global zone
    with open(sys.argv[3], encoding="utf-8") as f:
        zone = {k.lower().rstrip("."): v for k, v in json.load(f).items()}


if __name__ == "__main__":
    load()
    # waited for: one that a handler takes just before pause() is lost
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    log = open(sys.argv[4], "a", encoding="utf-8")
    where = (sys.argv[1], int(sys.argv[2]))
    v6 = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    for base, handler in ((socketserver.ThreadingUDPServer, Udp),
                          (socketserver.ThreadingTCPServer, Tcp)):
        base.address_family, base.allow_reuse_address = v6, True
        base.daemon_threads = True
        server = base(where, handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    while True:
        signal.sigwait([signal.SIGHUP])
        load()
