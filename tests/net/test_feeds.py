# SPDX-License-Identifier: Apache-2.0
"""What others read of penstock: metrics by Prometheus' own parsers, records
by the manual's list of keys, the service manager's datagrams."""
import json
import os
import re
import signal
import socket
import time

import pytest
from prometheus_client.openmetrics.parser import \
    text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read

from lab import POLICY, ROOT

OPEN = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5"


@pytest.fixture(scope="module")
def used(lab):
    """A daemon that has allowed and refused something of each kind."""
    lab.up("gateway")
    lab.agent("curl", "-sS", "https://allowed.test/")
    lab.agent("curl", "-sS", "http://allowed.test/")
    lab.agent("curl", "-sSk", "-m", "5", "--resolve",
              "evil.test:443:203.0.113.10", "https://evil.test/")
    lab.agent("curl", "-sS", "-m", "5", "http://denied.test/")
    lab.agent("curl", "-sS", "-x", "http://198.18.0.1:15080",
              "https://evil.test/")
    lab.record(kind="end", name="allowed.test")
    lab.record(kind="decision", name="evil.test", via="connect")
    yield lab
    lab.down()


def scrape(lab, accept):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(3)
    s.connect(lab.admin)
    s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: %s\r\n\r\n" %
              accept.encode())
    data = b""
    while part := s.recv(65536):
        data += part
    s.close()
    head, _, body = data.decode().partition("\r\n\r\n")
    kind = re.search(r"(?im)^content-type: *(.*)$", head).group(1).strip()
    return kind, body


def manual_metrics():
    """name -> type, as penstock(1) lists them."""
    with open(os.path.join(ROOT, "sidecar", "penstock.1")) as f:
        return dict(re.findall(r"^\.It Va penstock_(\w+) Ta (\w+) Ta",
                               f.read(), re.M))


def samples(families):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value
            for f in families for s in f.samples}


def test_text_is_read_by_its_parser(used):
    kind, body = scrape(used, "*/*")
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = list(read(body))
    assert body.endswith("\n") and "# EOF" not in body
    assert len({f.name for f in families}) == len(families)
    for f in families:
        assert f.documentation, f
        assert f.type in ("counter", "gauge", "histogram"), f
        assert f.samples, f
    # what the manual lists is there, with its type, and nothing else
    there = dict(re.findall(r"(?m)^# TYPE penstock_(\w+) (\w+)$", body))
    assert there == manual_metrics()
    for name, typ in there.items():
        assert (typ == "counter") == name.endswith("_total"), name


def test_openmetrics_is_read_by_its_strict_parser(used):
    kind, body = scrape(used, OPEN)
    assert kind == ("application/openmetrics-text; version=1.0.0; "
                    "charset=utf-8")
    families = list(read_open(body))
    assert body.endswith("\n# EOF\n") and body.count("# EOF") == 1
    assert {"penstock_" + n.removesuffix("_total"): t
            for n, t in manual_metrics().items()} == \
        {f.name: f.type for f in families}
    assert all(f.documentation for f in families)
    for f in families:
        if f.type == "counter":
            assert all(s.name == f.name + "_total" for s in f.samples), f


def test_both_formats_have_the_same_numbers(used):
    """Once nothing is under way."""
    end = time.monotonic() + 5
    while True:
        text, opened = (samples(list(r(scrape(used, a)[1])))
                        for r, a in ((read, ""), (read_open, OPEN)))
        if text == opened or time.monotonic() > end:
            break
        time.sleep(0.1)
    assert text == opened


def test_the_numbers_are_those_of_the_records(used):
    got = samples(list(read(scrape(used, "")[1])))
    for reason in ("no_rule", "rule_deny"):
        want = sum(r.get("count", 1) for r in used.records(
            verdict="deny", reason=reason) if r["kind"] in
            ("decision", "dns"))
        assert got[("penstock_denied_total",
                    (("reason", reason),))] >= want > 0, reason
    assert got[("penstock_allowed_total", ())] >= len(
        used.records(kind="decision", verdict="allow")) > 0
    assert got[("penstock_records_total", ())] >= len(used.records())
    assert got[("penstock_records_lost_total", ())] == 0
    assert got[("penstock_role_restarts_total", ())] == 0
    with open(os.path.join(ROOT, "VERSION")) as f:
        assert got[("penstock_build_info",
                    (("version", f.read().strip()),))] == 1


def manual_keys():
    """The keys of a record in the order of ledger(5)."""
    with open(os.path.join(ROOT, "ledger-client", "ledger.5")) as f:
        part = f.read().split(".Sh QUESTIONS")[0]
    return [k.strip() for line in re.findall(r"^\.It Cm (.*)$", part, re.M)
            for k in line.split(" , ")]


NUMBERS = {"v", "seq", "mono_us", "connection", "request", "port", "qtype",
           "status", "bytes_up", "bytes_down", "duration_us",
           "lost_up", "lost_down", "count",
           "generation"}


def test_each_record_is_as_the_manual_says(used):
    keys = manual_keys()
    lines = [line for line in open(used.records_path)
             if line.startswith("{")]
    assert len(lines) > 8
    for line in lines:
        assert line.isascii() and line.endswith("}\n"), line
        pairs = json.loads(line, object_pairs_hook=list)
        names = [k for k, _ in pairs]
        assert all(k in keys for k in names), names
        assert names == sorted(names, key=keys.index), names
        for k, v in pairs:
            want = int if k in NUMBERS and k != "qtype" else \
                list if k in ("labels", "lab", "answers") else (str, int)
            assert isinstance(v, want) and not isinstance(v, bool), (k, v)
            assert k not in NUMBERS or k == "qtype" or v >= 0, (k, v)
        assert {"v", "seq", "instance", "kind", "time",
                "mono_us"} <= set(names), names


def test_tail_prints_each_of_them(used):
    def tail(*more):
        r = used.verb("tail", "--once", "--file", used.records_path, *more)
        assert r.status == 0 and not r.err, r
        return r.out.splitlines()
    records = used.records()
    assert [json.loads(line) for line in tail("--json")][:len(records)] == \
        records
    assert len(tail()) >= len(records)
    assert any("evil.test" in line and "no_rule" in line
               for line in tail("--denied"))
    assert not any("verdict=allow" in line for line in tail("--denied"))


# ---- the service manager ----

class Manager:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.s.bind(path)
        os.chmod(path, 0o666)

    def next(self, seconds=5):
        """The next datagram, as its variables."""
        self.s.settimeout(seconds)
        text = self.s.recv(4096).decode("ascii")
        return dict(line.split("=", 1) for line in text.splitlines())

    def silent(self, seconds=0.3):
        try:
            return not self.next(seconds)
        except TimeoutError:
            return True


def test_a_service_manager_hears_each_state(lab):
    path = os.path.join(lab.dir, "notify")
    manager = Manager(path)
    lab.up("gateway", env={**os.environ, "NOTIFY_SOCKET": path})
    try:
        assert manager.next() == {
            "READY": "1", "STATUS": "serving, mode gateway, generation 1"}
        before = time.monotonic() * 1e6
        with open(lab.policy, "w") as f:
            f.write(POLICY.replace("hostname: other.test",
                                   "hostname: another.test"))
        lab.penstock.send_signal(signal.SIGHUP)
        got = manager.next()
        assert got["RELOADING"] == "1", got
        assert before <= int(got["MONOTONIC_USEC"]) <= \
            time.monotonic() * 1e6, got
        assert manager.next() == {
            "READY": "1", "STATUS": "serving, mode gateway, generation 2"}
        with open(lab.policy, "w") as f:
            f.write(POLICY + "    - nonsense\n")
        lab.penstock.send_signal(signal.SIGHUP)
        assert manager.next()["RELOADING"] == "1"
        assert manager.next() == {
            "READY": "1", "STATUS": "policy refused, generation 2 stays; "
            "the log says why"}
        assert manager.silent()
        lab.penstock.send_signal(signal.SIGTERM)
        assert manager.next() == {"STOPPING": "1",
                                  "STATUS": "connections are drained"}
    finally:
        lab.down()
        manager.s.close()


def test_a_manager_that_is_not_there_stops_nothing(lab):
    lab.up("gateway", env={**os.environ, "NOTIFY_SOCKET": "/nowhere"})
    try:
        assert lab.get("/readyz")[0] == 200
    finally:
        lab.down()
