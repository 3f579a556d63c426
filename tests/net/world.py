# SPDX-License-Identifier: Apache-2.0
"""The servers of the world, in one process inside its namespace.

An origin that fails in chosen ways, an echo for TCP and UDP, a WebSocket
server, and servers that are lenient about what stands in front of a request
or a ClientHello.  Argument: a directory; what arrived is appended to its file `seen` as
JSON lines.
"""
import base64
import hashlib
import http.server
import json
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

DIR = sys.argv[1]
SEEN = open(os.path.join(DIR, "seen"), "a", buffering=1)
LOCK = threading.Lock()


def seen(what, **more):
    with LOCK:
        SEEN.write(json.dumps({"what": what, **more}) + "\n")


class UdpEcho(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        seen("udp", peer=self.client_address[0], data=data.decode("latin-1"))
        sock.sendto(data, self.client_address)


class Echo(socketserver.BaseRequestHandler):
    """Speaks first, echoes, and says at the end how much it had."""

    def handle(self):
        seen("echo", peer=self.client_address[0])
        total = 0
        self.request.sendall(b"ready\n")
        while True:
            data = self.request.recv(65536)
            if not data:
                break
            total += len(data)
            self.request.sendall(data)
        self.request.sendall(b"\nhad %d\n" % total)


class Fault(socketserver.StreamRequestHandler):
    """Plain HTTP, failing as the path asks."""

    def handle(self):
        line = self.rfile.readline(4096).decode("latin-1")
        while self.rfile.readline(4096) not in (b"\r\n", b"\n", b""):
            pass
        path = line.split(" ")[1] if " " in line else "/"
        seen("fault", path=path)
        if path.startswith("/reset"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
            self.connection.close()
        elif path.startswith("/empty"):
            return
        elif path.startswith("/short"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"
                             b"\r\nshort")
        elif path.startswith("/both"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
                             b"Transfer-Encoding: chunked\r\n\r\n"
                             b"2\r\nok\r\n0\r\n\r\n")
        elif path.startswith("/chunks"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTrailer: X\r\n"
                             b"Transfer-Encoding: chunked\r\n\r\n")
            for part in (b"in ", b"two ", b"x" * 100000, b" chunks\n"):
                self.wfile.write(b"%x;a=b\r\n%s\r\n" % (len(part), part))
            if not path.endswith("cut"):
                self.wfile.write(b"0\r\nX: y\r\n\r\n")
        elif path.startswith("/hang"):
            time.sleep(20)
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
                             b"Connection: close\r\n\r\nok\n")


class WebSocket(socketserver.StreamRequestHandler):
    def handle(self):
        key = ""
        while True:
            line = self.rfile.readline(4096).decode("latin-1").strip()
            if not line:
                break
            if line.lower().startswith("sec-websocket-key:"):
                key = line.split(":", 1)[1].strip()
        accept = base64.b64encode(hashlib.sha1(
            (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode())
            .digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\r\n"
                          "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                          f"Sec-WebSocket-Accept: {accept}\r\n\r\n").encode())
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            mask = self.rfile.read(4)
            body = self.rfile.read(head[1] & 127)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(body))
            self.wfile.write(bytes([0x81, len(text)]) + text)


class Lenient(http.server.BaseHTTPRequestHandler):
    """A request of HTTP/0.9 may have fields here, and any blank parts the
    words of its first line."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        host = self.headers.get("Host", "nobody")
        seen("lenient", host=host)
        body = ("reached %s\n" % host).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Secure(socketserver.BaseRequestHandler):
    """TLS for whatever name is asked for; first() is what comes before."""

    def first(self):
        pass

    def handle(self):
        name = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(DIR + "/srv.pem", DIR + "/srv.key")
        context.sni_callback = lambda s, n, c: name.append(n)
        self.first()
        with context.wrap_socket(self.request, server_side=True) as s:
            seen("secure", host=name[0])
            s.sendall(("reached %s\n" % name[0]).encode())


class Database(Secure):
    """As PostgreSQL goes over to TLS."""

    def first(self):
        if self.request.recv(8) != struct.pack(">II", 8, 80877103):
            raise ValueError("no SSLRequest")
        self.request.sendall(b"S")


class Reached(socketserver.BaseRequestHandler):
    """A PostgreSQL without TLS, whose every answer is an error."""

    def handle(self):
        if self.request.recv(8) == struct.pack(">II", 8, 80877103):
            self.request.sendall(b"N")
            self.request.recv(4096)
        seen("database", peer=self.client_address[0])
        text = b"SFATAL\0C28000\0Mreached the database\0\0"
        self.request.sendall(b"E" + struct.pack(">I", len(text) + 4) + text)


class Alerted(Secure):
    """Drops alerts in front of a hello."""

    def first(self):
        while self.request.recv(1, socket.MSG_PEEK) == b"\x15":
            self.request.recv(7)


def serve(kind, handler, family, address, port):
    class Server(socketserver.ThreadingMixIn, kind):
        daemon_threads = True
        allow_reuse_address = True
        address_family = family
        request_queue_size = 128

        def handle_error(self, request, client_address):
            pass
    server = Server((address, port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    tcp, udp = socketserver.TCPServer, socketserver.UDPServer
    four, six = socket.AF_INET, socket.AF_INET6
    serve(udp, UdpEcho, four, "203.0.113.10", 443)
    serve(udp, UdpEcho, four, "203.0.113.10", 9999)
    serve(udp, UdpEcho, six, "2001:db8:113::10", 9999)
    serve(tcp, Echo, four, "203.0.113.10", 7000)
    serve(tcp, Echo, four, "203.0.113.15", 7000)
    serve(tcp, Echo, six, "2001:db8:113::10", 7000)
    serve(tcp, Fault, four, "203.0.113.12", 80)
    serve(tcp, WebSocket, four, "203.0.113.13", 80)
    serve(tcp, Lenient, four, "203.0.113.15", 80)
    serve(tcp, Lenient, four, "203.0.113.15", 8080)
    serve(tcp, Database, four, "203.0.113.15", 5432)
    serve(tcp, Reached, four, "203.0.113.10", 5433)
    serve(tcp, Alerted, four, "203.0.113.15", 8443)
    print("ready", flush=True)
    threading.Event().wait()


main()
