#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A TLS 1.3 client that says what no library would: another name in its
second ClientHello than in its first, or a name that is said to be hidden.

    tls13.py ADDRESS FIRST SECOND [ech]

It offers the share of a group that a server for P-384 alone does not take,
so that a HelloRetryRequest follows (RFC 8446 4.1.4), then goes through the
handshake to the end and asks for / of SECOND.  With "ech" both hellos carry
encrypted_client_hello in the form that browsers send to everybody (RFC 9849
6.2, GREASE).  Nothing of the server is verified: the guard is what is tested.
"""
import hashlib
import hmac
import os
import socket
import struct
import sys

RETRY = hashlib.sha256(b"HelloRetryRequest").digest()
X25519, P384 = 0x001d, 0x0018

# ---- P-384 (FIPS 186-4 D.1.2.4) ----

P = 2**384 - 2**128 - 2**96 + 2**32 - 1
G = (int("aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a38"
         "5502f25dbf55296c3a545e3872760ab7", 16),
     int("3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c0"
         "0a60b1ce1d7e819d7a431d7c90ea0e5f", 16))


def add(a, b):
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % P == 0:
        return None
    if a == b:
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def times(k, point):
    out = None
    while k:
        if k & 1:
            out = add(out, point)
        point, k = add(point, point), k >> 1
    return out


# ---- ChaCha20-Poly1305 (RFC 8439) ----

def block(key, counter, nonce):
    first = list(struct.unpack("<16I", b"expand 32-byte k" + key +
                               struct.pack("<I", counter) + nonce))
    s = first[:]

    def quarter(a, b, c, d):
        for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8),
                           (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xffffffff
            v = s[z] ^ s[x]
            s[z] = (v << n | v >> (32 - n)) & 0xffffffff
    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xffffffff
                                 for a, b in zip(s, first)))


def chacha(key, nonce, data):
    stream = b"".join(block(key, 1 + i, nonce)
                      for i in range((len(data) + 63) // 64))
    return bytes(a ^ b for a, b in zip(data, stream))


def tag(key, nonce, extra, data):
    k = block(key, 0, nonce)[:32]
    r = int.from_bytes(k[:16], "little") & 0x0ffffffc0ffffffc0ffffffc0fffffff
    pad = b"".join(x + bytes(-len(x) % 16) for x in (extra, data))
    pad += struct.pack("<QQ", len(extra), len(data))
    sum_ = 0
    for i in range(0, len(pad), 16):
        n = int.from_bytes(pad[i:i + 16] + b"\1", "little")
        sum_ = (sum_ + n) * r % (2**130 - 5)
    sum_ += int.from_bytes(k[16:], "little")
    return (sum_ & (2**128 - 1)).to_bytes(16, "little")


# ---- the key schedule (RFC 8446 7.1) ----

def extract(salt, key):
    return hmac.digest(salt, key, "sha256")


def expand(secret, label, context, n):
    label = b"tls13 " + label
    info = struct.pack(">HB", n, len(label)) + label + \
        bytes([len(context)]) + context
    return hmac.digest(secret, info + b"\1", "sha256")[:n]


def derive(secret, label, said):
    return expand(secret, label, hashlib.sha256(said).digest(), 32)


class Keys:
    def __init__(self, secret):
        self.key = expand(secret, b"key", b"", 32)
        self.iv = expand(secret, b"iv", b"", 12)
        self.n = 0

    def nonce(self):
        n = self.n.to_bytes(12, "big")
        self.n += 1
        return bytes(a ^ b for a, b in zip(self.iv, n))

    def seal(self, kind, data):
        data += bytes([kind])
        head = struct.pack(">BHH", 23, 0x303, len(data) + 16)
        nonce = self.nonce()
        sealed = chacha(self.key, nonce, data)
        return head + sealed + tag(self.key, nonce, head, sealed)

    def open(self, head, data):
        nonce = self.nonce()
        if tag(self.key, nonce, head, data[:-16]) != data[-16:]:
            raise OSError("a record that does not open")
        data = chacha(self.key, nonce, data[:-16]).rstrip(b"\0")
        return data[-1], data[:-1]


# ---- messages ----

def sized(n, data):
    return len(data).to_bytes(n, "big") + data


def ext(kind, data):
    return struct.pack(">H", kind) + sized(2, data)


def hello(name, group, share, fixed, more):
    exts = ext(0, sized(2, b"\0" + sized(2, name.encode())))
    exts += ext(10, sized(2, struct.pack(">HH", X25519, P384)))
    exts += ext(13, sized(2, bytes.fromhex("040305030804080508060401")))
    exts += ext(43, sized(1, b"\3\4"))
    exts += ext(51, sized(2, struct.pack(">H", group) + sized(2, share)))
    body = b"\3\3" + fixed[0] + sized(1, fixed[1]) + \
        sized(2, b"\x13\x03") + b"\1\0" + sized(2, exts + more)
    return b"\1" + sized(3, body)


class Peer:
    def __init__(self, s):
        self.s = s
        self.s.settimeout(6)
        self.f = self.s.makefile("rb")
        self.keys = None
        self.left = b""

    def record(self):
        while True:
            head = self.f.read(5)
            if len(head) < 5:
                raise EOFError("the peer closed")
            data = self.f.read(int.from_bytes(head[3:], "big"))
            kind = head[0]
            if kind == 20:
                continue
            if kind == 23 and self.keys is not None:
                kind, data = self.keys.open(head, data)
            if kind == 21:
                raise EOFError("alert %d" % data[1])
            return kind, data

    def message(self):
        while len(self.left) < 4 or \
                len(self.left) < 4 + int.from_bytes(self.left[1:4], "big"):
            self.left += self.record()[1]
        n = 4 + int.from_bytes(self.left[1:4], "big")
        out, self.left = self.left[:n], self.left[n:]
        return out

    def say(self, data):
        self.s.sendall(struct.pack(">BHH", 22, 0x301, len(data)) + data)


def extension(server_hello, kind):
    at = 4 + 2 + 32
    at += 1 + server_hello[at] + 3 + 2
    while at < len(server_hello):
        have, n = struct.unpack(">HH", server_hello[at:at + 4])
        if have == kind:
            return server_hello[at + 4:at + 4 + n]
        at += 4 + n
    return b""


def finished(secret, said):
    check = hmac.digest(expand(secret, b"finished", b"", 32),
                        hashlib.sha256(said).digest(), "sha256")
    return b"\x14" + sized(3, check)


def finish(peer, said, shared, host):
    """From the ServerHello to the end, with a request for / of the host."""
    none = bytes(32)
    early = derive(extract(none, none), b"derived", b"")
    hand = extract(early, shared)
    ours = derive(hand, b"c hs traffic", said)
    peer.keys = Keys(derive(hand, b"s hs traffic", said))
    while said[-36:-32] != b"\x14\0\0\x20":         # Finished
        said += peer.message()
    top = extract(derive(hand, b"derived", b""), none)
    out = Keys(derive(top, b"c ap traffic", said))
    peer.keys = Keys(derive(top, b"s ap traffic", said))
    peer.s.sendall(Keys(ours).seal(22, finished(ours, said)))
    peer.s.sendall(out.seal(23, b"GET / HTTP/1.1\r\nHost: %s\r\n"
                            b"Connection: close\r\n\r\n" % host.encode()))
    got = b""
    while b"reached" not in got or not got.endswith(b"\n"):
        kind, data = peer.record()
        if kind == 23:
            got += data
    print(got.decode())


def main(address, first, second, *options):
    more = b""
    if "ech" in options:
        more = ext(0xfe0d, b"\0\0\1\0\1" + os.urandom(1) +
                   sized(2, os.urandom(32)) + sized(2, os.urandom(208)))
    fixed = os.urandom(32), os.urandom(32)
    peer = Peer(socket.create_connection((address, 443), 5))
    one = hello(first, X25519, os.urandom(32), fixed, more)
    peer.say(one)
    retry = peer.message()
    if retry[6:38] != RETRY:
        raise OSError("no HelloRetryRequest came")
    print("retry asked", flush=True)
    cookie = extension(retry, 44)
    secret = int.from_bytes(os.urandom(47), "big") + 1
    point = times(secret, G)
    share = b"\4" + b"".join(v.to_bytes(48, "big") for v in point)
    two = hello(second, P384, share, fixed,
                more + (ext(44, cookie) if cookie else b""))
    peer.say(two)
    said = b"\xfe" + sized(3, hashlib.sha256(one).digest()) + retry + two
    answer = peer.message()
    said += answer
    theirs = extension(answer, 51)[5:]
    theirs = tuple(int.from_bytes(theirs[i:i + 48], "big") for i in (0, 48))
    finish(peer, said, times(secret, theirs)[0].to_bytes(48, "big"), second)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, EOFError) as e:
        print("error", type(e).__name__, e)
