#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A forward proxy without a policy: plainproxy.py PORT...

What the explicit listener guards, seen without it: CONNECT to anywhere, and
each request to whatever it names, a lenient reader as careless proxies are
(userinfo skipped, %00 ends a name, 0x7f000001 is an address).  Nothing is
taken out of a request.  Prints "ready".
"""
import contextlib
import socket
import socketserver
import sys
import threading
import urllib.parse


def head_of(f):
    lines = []
    while True:
        line = f.readline(65536)
        if line in (b"\r\n", b"\n"):
            return lines
        if not line:
            return None
        lines.append(line)


def copy(source, to):
    with contextlib.suppress(OSError):
        while True:
            data = source(65536)
            if not data:
                break
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


def dial(authority, port):
    authority = urllib.parse.unquote(authority.rpartition("@")[2])
    host, colon, tail = authority.rpartition(":")
    if colon and "]" not in tail:
        port = int(tail)
    else:
        host = authority
    return socket.create_connection(
        (host.split("\0")[0].strip("[]"), port), 5)


def field(lines, name):
    for line in lines[1:]:
        key, _, value = line.decode("latin-1").partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""


class Proxy(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError, ValueError):
            while self.request_():
                pass

    def request_(self):
        lines = head_of(self.rfile)
        if not lines:
            return False
        method, target, version = lines[0].decode("latin-1").split()
        if method == "CONNECT":
            return self.tunnel(target)
        rest = target.partition("://")[2]
        authority, slash, path = rest.partition("/")
        if not rest:
            authority, slash, path = field(lines, "host"), "", target
        up = dial(authority, 80)
        lines[0] = ("%s %s%s %s\r\n" % (method, slash, path, version)).encode(
            "latin-1")
        lines.insert(1, b"Connection: close\r\n")
        up.sendall(b"".join(lines) + b"\r\n" + self.rfile.read(
            int(field(lines, "content-length") or 0)))
        sized = False
        while True:
            data = up.recv(65536)
            if not data:
                break
            sized = sized or b"content-length:" in data.lower()
            self.connection.sendall(data)
        up.close()
        return sized and field(lines[1:], "connection") != "close"

    def tunnel(self, target):
        up = dial(target, 443)
        self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        there = threading.Thread(target=copy, args=(self.rfile.read1, up))
        there.start()
        copy(up.recv, self.connection)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)
        there.join()
        up.close()
        return False


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


for given in sys.argv[1:]:
    made = Server(("0.0.0.0", int(given)), Proxy)
    threading.Thread(target=made.serve_forever, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
