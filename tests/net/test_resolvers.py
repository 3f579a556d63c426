# SPDX-License-Identifier: Apache-2.0
"""The resolvers that programs bring along, as clients of the front: what an
allowed name, a denied one, a list of domains to search and an answer too
large for a datagram are to each of them."""
import os

import pytest

from cases import Case, check_pair
from lab import NAMES, sh

SETTINGS = {"extra": "dns: {denied_names: nxdomain}\n"}
SEARCH = "search a.corp b.corp c.corp d.corp e.corp\n"
# the front gives an agent as many as it pins to one name
MANY = ["203.0.113.%d" % n for n in range(100, 160)]
PINNED = set(MANY[:32])

GETADDRINFO = """
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int n, char **arg)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *a;
	char text[64];
	int e = getaddrinfo(arg[n - 1], NULL, &hints, &a);
	if (e)
		return printf("error %s\\n", gai_strerror(e)), 1;
	for (; a; a = a->ai_next) {
		void *at = a->ai_family == AF_INET ?
		    (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr :
		    (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		printf("%s\\n", inet_ntop(a->ai_family, at, text, 64));
	}
}
"""

ARES = """
#include <ares.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/select.h>
static void done(void *data, int e, int timeouts, struct ares_addrinfo *r)
{
	char text[64];
	if (e)
		printf("error %s\\n", ares_strerror(e));
	for (struct ares_addrinfo_node *a = e ? NULL : r->nodes; a;
	    a = a->ai_next)
		printf("%s\\n", inet_ntop(a->ai_family, a->ai_family == AF_INET ?
		    (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr :
		    (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr,
		    text, 64));
}
int main(int n, char **arg)
{
	struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC };
	ares_channel c;
	if (ares_library_init(ARES_LIB_INIT_ALL) || ares_init(&c))
		return 1;
	ares_getaddrinfo(c, arg[n - 1], NULL, &hints, done, NULL);
	for (;;) {
		fd_set in, out;
		struct timeval t;
		FD_ZERO(&in);
		FD_ZERO(&out);
		int most = ares_fds(c, &in, &out);
		if (!most)
			return 0;
		select(most, &in, &out, NULL, ares_timeout(c, NULL, &t));
		ares_process(c, &in, &out);
	}
}
"""

GO = """
package main

import ("fmt"; "net"; "os")

func main() {
	a, err := net.LookupHost(os.Args[len(os.Args) - 1])
	if err != nil {
		fmt.Println("error", err)
	}
	for _, at := range a {
		fmt.Println(at)
	}
}
"""

LOOKUP = """require("dns").lookup(process.argv[1], {all: true}, (e, all) =>
console.log(e ? "error " + e : all.map(a => a.address).join("\\n")))"""
RESOLVE = """require("dns").resolve(process.argv[1], (e, all) =>
console.log(e ? "error " + e : all.join("\\n")))"""
PYTHON_GAI = """
import socket, sys
try:
    for a in socket.getaddrinfo(sys.argv[1], 80, type=socket.SOCK_STREAM):
        print(a[4][0])
except OSError as e:
    print("error", e)
"""
DNSPYTHON = """
import dns.exception, dns.resolver, sys
try:
    for a in dns.resolver.resolve(sys.argv[1], "A", search=True):
        print(a)
except dns.exception.DNSException as e:
    print("error", type(e).__name__)
"""

CLIENTS = {
    "python": ("/usr/bin/python3", "-c", PYTHON_GAI),
    "glibc": ("@glibc",), "musl": ("@musl",), "c-ares": ("@ares",),
    "go": ("@go",), "node-lookup": ("node", "-e", LOOKUP),
    "node-resolve": ("node", "-e", RESOLVE),
    "dnspython": ("/usr/bin/python3", "-c", DNSPYTHON),
}


@pytest.fixture(scope="module", autouse=True)
def built(lab):
    """The clients that are to be made, and more names."""
    d = os.path.join(lab.dir, "")
    for name, text in (("gai.c", GETADDRINFO), ("ares.c", ARES),
                       ("go.go", GO)):
        with open(d + name, "w") as f:
            f.write(text)
    sh("gcc", "-o", d + "glibc", d + "gai.c")
    sh("musl-gcc", "-o", d + "musl", d + "gai.c")
    sh("gcc", "-o", d + "ares", d + "ares.c", "-lcares")
    sh("go", "build", "-o", d + "go", d + "go.go",
       env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off",
            "HOME": d, "GOCACHE": d + "gocache", "GOFLAGS": "-p=2"})
    lab.names({**NAMES, "large.wild.test": {"A": MANY, "truncate": True}})
    yield
    lab.names(NAMES)


def ask(lab, client, name):
    return lab.agent(*(os.path.join(lab.dir, a[1:]) if a[0] == "@" else a
                       for a in CLIENTS[client]), name)


def denied(client):
    return Case(client, lambda lab: ask(lab, client, "evil.test"),
                lambda r: "203.0.113.10" in r.out,
                lambda lab, r: not_there(r), logged=False)


def not_there(r):
    assert r.out.startswith("error ") and "203.0.113.10" not in r.out, r
    assert r.seconds < 2, r


CASES = [denied(client) for client in CLIENTS]


def test_closed_after_leak(gate, case):
    check_pair(gate, case)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_allowed_name_has_its_address(gate, client):
    """AAAA, which `ipv6: drop` leaves out, fails no lookup."""
    for name in ("allowed.test", "dual.test"):
        r = ask(gate.lab, client, name)
        assert r.out == "203.0.113.10\n" and r.seconds < 2, r


@pytest.mark.parametrize("client", CLIENTS)
def test_b043_domains_to_search_cost_nothing(gate, client):
    """Five of them are asked for first, and none of them is allowed."""
    lab = gate.lab
    path = "/etc/netns/%s/resolv.conf" % lab.ns(lab.agent_space)
    with open(path) as f:
        before = f.read()
    try:
        with open(path, "w") as f:
            f.write(before.replace("options", SEARCH + "options ndots:5"))
        r = ask(lab, client, "allowed.test")
        assert r.out == "203.0.113.10\n" and r.seconds < 2, r
        not_there(ask(lab, client, "evil.test"))
    finally:
        with open(path, "w") as f:
            f.write(before)
    if client != "node-resolve":        # it searches nowhere
        assert lab.record(kind="dns", name="allowed.test.e.corp")
    assert lab.asked("allowed.test.e.corp") == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_b044_a_large_answer_comes_over_tcp(gate, client):
    """This musl asks by UDP alone: what fits into 512 octets is its."""
    r = ask(gate.lab, client, "large.wild.test")
    got = set(r.out.split())
    assert got <= PINNED and r.seconds < 3, r
    assert got == PINNED or client == "musl" and len(got) > 8, r
