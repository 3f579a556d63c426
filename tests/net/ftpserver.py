# SPDX-License-Identifier: Apache-2.0
"""As little of an FTP server as a listing needs.

    ftpserver.py ADDRESS FOREIGN LOG

CWD chooses what PASV announces: its own address, or FOREIGN; each data
connection is written to LOG.
"""
import socket
import sys
import threading

OWN, FOREIGN, LOG = sys.argv[1:4]
PORT = 40001


def listening(addr, port):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((addr, port))
    s.listen(8)
    return s


DATA = {OWN: listening(OWN, PORT), FOREIGN: listening(FOREIGN, PORT)}


def deliver(control, place, way):
    DATA[place].settimeout(4)
    try:
        c, _ = DATA[place].accept()
    except OSError:
        return control.sendall(b"425 nobody came\r\n")
    with open(LOG, "a") as f:
        print(way, file=f)
    c.sendall(b"reached by %s\r\n" % way.encode())
    c.close()
    control.sendall(b"226 sent\r\n")


def serve(c):
    place, way = OWN, "own"
    c.sendall(b"220 the server speaks first\r\n")
    for line in c.makefile("rb"):
        word, _, rest = line.decode("latin-1").strip().partition(" ")
        if word == "CWD":
            way, place = rest, FOREIGN if rest == "foreign" else OWN
        if word == "PASV":
            c.sendall(b"227 at (%s,%d,%d)\r\n" % (
                place.replace(".", ",").encode(), PORT >> 8, PORT & 255))
        elif word == "EPSV":
            way = "extended"
            c.sendall(b"229 at (|||%d|)\r\n" % PORT)
        elif word == "NLST":
            c.sendall(b"150 comes\r\n")
            deliver(c, place, way)
        else:
            c.sendall(b"230 well\r\n")


def main():
    open(LOG, "w").close()
    control = listening(OWN, 21)
    print("ready", flush=True)
    while True:
        c, _ = control.accept()
        threading.Thread(target=serve, args=(c,), daemon=True).start()


main()
