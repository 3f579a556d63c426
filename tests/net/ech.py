#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server and a client that speak ECH (RFC 9849), on tls13.py: the inner hello
is sealed by HPKE, and only who has the key learns its name.

    ech.py serve ADDRESS OUTER FILE DIR    the configuration goes to FILE
    ech.py ask ADDRESS INNER FILE
"""
import hashlib
import hmac
import os
import socket
import subprocess
import sys

import tls13
from tls13 import (X25519, Keys, Peer, chacha, derive, expand, ext, extract,
                   extension, sized, tag)

ECH = 0xfe0d
KEM, SUITE = b"KEM\0\x20", b"HPKE\0\x20\0\1\0\3"
NONE = bytes(32)
BASE = b"\x09" + bytes(31)


# ---- X25519 (RFC 7748 5) ----

def x25519(key, point):
    p = 2**255 - 19
    k = int.from_bytes(key, "little") & ~7 & 2**255 - 1 | 2**254
    u = int.from_bytes(point, "little") & 2**255 - 1
    a, b, c, d = 1, 0, u, 1
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if bit:
            a, b, c, d = c, d, a, b
        plus, minus = a + b, a - b
        da, cb = (c - d) * plus, (c + d) * minus
        c, d = (da + cb)**2 % p, u * (da - cb)**2 % p
        aa, bb = plus * plus % p, minus * minus % p
        e = aa - bb
        a, b = aa * bb % p, e * (aa + 121665 * e) % p
        if bit:
            a, b, c, d = c, d, a, b
    return (a * pow(b, -1, p) % p).to_bytes(32, "little")


# ---- HPKE, base mode (RFC 9180) ----

def drawn(salt, suite, label, data):
    return extract(salt, b"HPKE-v1" + suite + label + data)


def spread(secret, suite, label, info, n):
    return hmac.digest(secret, n.to_bytes(2, "big") + b"HPKE-v1" + suite +
                       label + info + b"\1", "sha256")[:n]


def hpke(shared, sent, public, config):
    """The key and the nonce of the first message."""
    secret = spread(drawn(b"", KEM, b"eae_prk", shared), KEM,
                    b"shared_secret", sent + public, 32)
    context = b"\0" + drawn(b"", SUITE, b"psk_id_hash", b"") + \
        drawn(b"", SUITE, b"info_hash", b"tls ech\0" + config)
    secret = drawn(secret, SUITE, b"secret", b"")
    return spread(secret, SUITE, b"key", context, 32), \
        spread(secret, SUITE, b"base_nonce", context, 12)


# ---- hellos ----

def config_of(public, outer):
    c = b"\7\0\x20" + sized(2, public) + sized(2, b"\0\1\0\3") + b"\x40"
    c += sized(1, outer.encode()) + b"\0\0"
    return b"\xfe\x0d" + sized(2, c)


def public_of(config):
    return config[9:41]


def outer_name(config):
    at = 41 + 2 + 4 + 1
    return config[at + 1:at + 1 + config[at]].decode()


def extensions_at(hello):
    """Of a ClientHello in its handshake header."""
    at = 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at:at + 2], "big")
    return at + 1 + hello[at]


def client_extension(hello, kind):
    """Where its data begins, and the data."""
    at = extensions_at(hello) + 2
    while at < len(hello):
        n = int.from_bytes(hello[at + 2:at + 4], "big")
        if int.from_bytes(hello[at:at + 2], "big") == kind:
            return at + 4, hello[at + 4:at + 4 + n]
        at += 4 + n
    return 0, b""


def with_session(hello, session):
    """The same hello with this session id, in its header."""
    body = hello[4:38] + sized(1, session) + hello[39 + hello[38]:]
    return b"\1" + sized(3, body)


def confirmation(inner, server_hello):
    """What tells that the inner hello was taken (RFC 9849 7.2)."""
    blank = server_hello[:30] + bytes(8) + server_hello[38:]
    return expand(extract(NONE, inner[6:38]), b"ech accept confirmation",
                  hashlib.sha256(inner + blank).digest(), 8)


def sealed(inner, config, share, session):
    """The outer hello that hides the inner."""
    key = os.urandom(32)
    sent = x25519(key, BASE)
    key, nonce = hpke(x25519(key, public_of(config)), sent,
                      public_of(config), config)
    plain = with_session(inner, b"")[4:]
    plain += bytes(-len(plain) % 32)
    blank = bytes(len(plain) + 16)
    outer = tls13.hello(outer_name(config), X25519, share,
                        (os.urandom(32), session),
                        ext(ECH, b"\0\0\1\0\3\7" + sized(2, sent) +
                            sized(2, blank)))
    hidden = chacha(key, nonce, plain)
    hidden += tag(key, nonce, outer[4:], hidden)
    return outer.replace(blank, hidden)


def opened(outer, secret, config):
    """The inner hello, as it counts in the transcript."""
    at, data = client_extension(outer, ECH)
    if data[:6] != b"\0\0\1\0\3\7":
        raise OSError("no ECH for this server")
    sent, hidden = data[8:40], data[42:]
    key, nonce = hpke(x25519(secret, sent), sent, public_of(config), config)
    blank = outer[:at + 42] + bytes(len(hidden)) + outer[at + len(data):]
    if tag(key, nonce, blank[4:], hidden[:-16]) != hidden[-16:]:
        raise OSError("an inner hello that does not open")
    inner = b"\1" + sized(3, chacha(key, nonce, hidden[:-16]))
    end = extensions_at(inner)
    inner = inner[:end + 2 + int.from_bytes(inner[end:end + 2], "big")]
    return with_session(inner, outer[39:39 + outer[38]])


# ---- the server ----

def server_hello(inner, key):
    body = b"\3\3" + os.urandom(24) + bytes(8) + \
        sized(1, inner[39:39 + inner[38]]) + b"\x13\3\0" + \
        sized(2, ext(43, b"\3\4") + ext(51, b"\0\x1d" +
                                        sized(2, x25519(key, BASE))))
    blank = b"\2" + sized(3, body)
    return blank[:30] + confirmation(inner, blank) + blank[38:]


def certificate(directory, said):
    """Certificate and CertificateVerify."""
    der = subprocess.run(["openssl", "x509", "-in", directory + "/srv.pem",
                          "-outform", "DER"], check=True,
                         capture_output=True).stdout
    one = b"\x0b" + sized(3, b"\0" + sized(3, sized(3, der) + b"\0\0"))
    digest = hashlib.sha256(said + one).digest()
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", directory + "/srv.key"],
        input=b" " * 64 + b"TLS 1.3, server CertificateVerify\0" + digest,
        check=True, capture_output=True).stdout
    return one + b"\x0f" + sized(3, b"\4\3" + sized(2, signed))


def serve_one(s, secret, config, directory):
    peer, key = Peer(s), os.urandom(32)
    inner = opened(peer.message(), secret, config)
    name = client_extension(inner, 0)[1][5:].decode()
    answer = server_hello(inner, key)
    said = inner + answer
    share = client_extension(inner, 51)[1][6:]
    hand = extract(derive(extract(NONE, NONE), b"derived", b""),
                   x25519(key, share))
    theirs = derive(hand, b"c hs traffic", said)
    ours = derive(hand, b"s hs traffic", said)
    peer.say(answer)
    more = b"\x08\0\0\2\0\0"
    more += certificate(directory, said + more)
    more += tls13.finished(ours, said + more)
    said += more
    out = Keys(ours)
    peer.s.sendall(out.seal(22, more))
    peer.keys = Keys(theirs)
    if peer.message() != tls13.finished(theirs, said):
        raise OSError("a Finished that is none")
    top = extract(derive(hand, b"derived", b""), NONE)
    peer.keys = Keys(derive(top, b"c ap traffic", said))
    peer.record()
    peer.s.sendall(Keys(derive(top, b"s ap traffic", said)).seal(
        23, b"reached %s ech true\n" % name.encode()))


def serve(address, outer, file, directory):
    secret = os.urandom(32)
    config = config_of(x25519(secret, BASE), outer)
    with open(file, "wb") as f:
        f.write(config)
    os.chmod(file, 0o644)
    listener = socket.create_server((address, 443))
    print("ready", flush=True)
    while True:
        s = listener.accept()[0]
        try:
            serve_one(s, secret, config, directory)
        except (OSError, EOFError, ValueError) as e:
            print("error", e, file=sys.stderr, flush=True)
        s.close()


# ---- the client ----

def ask(address, name, file):
    with open(file, "rb") as f:
        config = f.read()
    key, session = os.urandom(32), os.urandom(32)
    share = x25519(key, BASE)
    inner = tls13.hello(name, X25519, share, (os.urandom(32), session),
                        ext(ECH, b"\1"))
    peer = Peer(socket.create_connection((address, 443), 5))
    peer.say(sealed(inner, config, share, session))
    answer = peer.message()
    if answer[30:38] != confirmation(inner, answer):
        raise OSError("the inner hello was not taken")
    shared = x25519(key, extension(answer, 51)[4:])
    tls13.finish(peer, inner + answer, shared, name)


if __name__ == "__main__":
    try:
        {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
    except (OSError, EOFError) as e:
        print("error", type(e).__name__, e)
