# SPDX-License-Identifier: Apache-2.0
"""What a hostile client does with TLS and CONNECT, by hand.

    split ADDRESS NAME             a ClientHello in many small segments
    records ADDRESS NAME           a ClientHello in records of 20 bytes
    plain ADDRESS NAME             nothing special
    connect PROXY NAME SNI         CONNECT to one name, SNI of another
    early PROXY NAME               CONNECT head and hello in one write
    sniless ADDRESS                no server name
    garbage ADDRESS                neither TLS nor HTTP
    silent ADDRESS                 connect and wait
    share ADDRESS NAME OTHER       HTTP/2: a request for each name, if both
                                   have the address
    ride ADDRESS NAME OTHER        the same, whatever addresses they have
    two ADDRESS NAME OTHER         both names in one server_name list
"""
import socket
import ssl
import struct
import sys
import time

WHAT, AT = sys.argv[1:3]
PORT = 443


def hello(name):
    """A client's TLS state, and its first flight."""
    context = ssl._create_unverified_context()
    inb, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(inb, out, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return tls, inb, out, out.read()


def finish(s, tls, inb, out, host):
    def pump():
        data = out.read()
        if data:
            s.sendall(data)
        data = s.recv(65536)
        if not data:
            inb.write_eof()
            raise EOFError("the peer closed")
        inb.write(data)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            pump()
    tls.write(b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" %
              host.encode())
    s.sendall(out.read())
    answer = b""
    while b"reached" not in answer or b"\n" not in answer[-2:]:
        try:
            answer += tls.read(65536)
        except ssl.SSLWantReadError:
            pump()
    print(answer.decode())


def connect_head(s, name, more=b""):
    s.sendall(b"CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n" %
              (name.encode(), name.encode()) + more)
    head = b""
    while b"\r\n\r\n" not in head:
        data = s.recv(1)
        if not data:
            break
        head += data
    print(head.decode("latin-1").split("\r\n")[0])


def with_two_names(first, name, other):
    """The same hello with another entry in its server_name list."""
    entry = b"\0" + struct.pack(">H", len(name)) + name.encode()
    extra = b"\0" + struct.pack(">H", len(other)) + other.encode()
    at = first.index(struct.pack(">H", len(entry)) + entry)
    grow = len(extra)
    body = bytearray(first[:at] + struct.pack(">H", len(entry) + grow) +
                     entry + extra + first[at + 2 + len(entry):])

    def bump(offset, size):
        v = int.from_bytes(body[offset:offset + size], "big") + grow
        body[offset:offset + size] = v.to_bytes(size, "big")
    bump(3, 2)                              # record
    bump(6, 3)                              # handshake
    bump(at - 2, 2)                         # this extension
    sid = 43 + 1 + body[43]
    suites = sid + 2 + int.from_bytes(body[sid:sid + 2], "big")
    bump(suites + 1 + body[suites], 2)      # all extensions
    return bytes(body)


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + \
        struct.pack(">I", stream) + body


def read_frame(tls):
    def exactly(n):
        data = b""
        while len(data) < n:
            part = tls.recv(n - len(data))
            if not part:
                raise EOFError("the peer closed")
            data += part
        return data
    head = exactly(9)
    return head[3], head[4], exactly(int.from_bytes(head[:3], "big"))


def ask_on(tls, stream, name):
    """GET https://name/ on a stream of its own: what the server says."""
    fields = b"\x82\x87\x84\x01" + bytes([len(name)]) + name.encode()
    tls.sendall(frame(1, 5, stream, fields))
    answer = b""
    while True:
        kind, flags, body = read_frame(tls)
        if kind == 4 and not flags & 1:
            tls.sendall(frame(4, 1, 0))
        if kind == 0:
            answer += body
        if kind in (0, 1) and flags & 1:
            return print(answer.decode())
        if kind in (3, 7):
            return print("stream refused", body)


def two_on_one(s, name, other, ask):
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["h2"])
    tls = context.wrap_socket(s, server_hostname=name)
    tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
    ask_on(tls, 1, name)
    if ask:
        try:
            has = socket.gethostbyname(other)
        except OSError:
            has = None
        if has != AT:
            return print(other, "has no such address")
    ask_on(tls, 3, other)


def raw_answer(s):
    data = s.recv(4096)
    if data[:1] == b"\x15":
        print("alert", data[6])
    else:
        print("answer", data[:60])


def main():
    s = socket.create_connection((AT, 15080 if WHAT in ("connect", "early")
                                  else PORT), 5)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.settimeout(12)
    name = sys.argv[3] if len(sys.argv) > 3 else None
    if WHAT == "garbage":
        s.sendall(b"\x00\x01garbage\xff\xfe" * 4)
        return raw_answer(s)
    if WHAT == "silent":
        return raw_answer(s)
    if WHAT in ("share", "ride"):
        return two_on_one(s, name, sys.argv[4], WHAT == "share")
    if WHAT == "connect":
        connect_head(s, name)
        tls, inb, out, first = hello(sys.argv[4])
        s.sendall(first)
        return finish(s, tls, inb, out, sys.argv[4])
    tls, inb, out, first = hello(name)
    if WHAT == "early":
        connect_head(s, name, first)
    elif WHAT == "split":
        step = max(1, len(first) // 40)
        for i in range(0, len(first), step):
            s.sendall(first[i:i + step])
            time.sleep(0.005)
    elif WHAT == "records":
        for i in range(5, len(first), 20):
            part = first[i:i + 20]
            s.sendall(first[:3] + struct.pack(">H", len(part)) + part)
    elif WHAT == "two":
        s.sendall(with_two_names(first, name, sys.argv[4]))
        return raw_answer(s)
    elif WHAT == "sniless":
        s.sendall(first)
        return raw_answer(s)
    else:
        s.sendall(first)
    return finish(s, tls, inb, out, name)


try:
    main()
except (OSError, EOFError) as e:
    print("error", type(e).__name__, e)
