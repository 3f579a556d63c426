#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Questions as they are given: dnsasker.py ADDR, "udp HEX" or "tcp HEX" a line
of its input; prints the reply to each in hexadecimal, "-" where none comes."""
import socket
import struct
import sys


def whole(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            raise EOFError
        got += part
    return got


def udp(msg):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(6)
        s.connect((sys.argv[1], 53))
        s.send(msg)
        return s.recv(65536)


def tcp(msg):
    with socket.create_connection((sys.argv[1], 53), 6) as s:
        s.sendall(struct.pack(">H", len(msg)) + msg)
        return whole(s, struct.unpack(">H", whole(s, 2))[0])


for line in sys.stdin:
    via, _, text = line.strip().partition(" ")
    try:
        print({"udp": udp, "tcp": tcp}[via](bytes.fromhex(text)).hex())
    except (OSError, EOFError):
        print("-")
