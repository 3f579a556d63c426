# SPDX-License-Identifier: Apache-2.0
"""One lab for the whole run; every file's attempts are first seen to succeed
without the guard, then tried again with it."""
import os
import sys

import pytest
from _pytest.assertion import rewrite

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import Lab  # noqa: E402

MODES = ("gateway", "shared")
# pytest would cut what a failed client said to 240 letters.
rewrite._get_maxsize_for_saferepr = lambda config: 4000


@pytest.fixture(scope="session")
def lab():
    with Lab() as made:
        yield made


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        pairs = [(m, c) for m in MODES for c in metafunc.module.CASES
                 if m in c.modes]
        metafunc.parametrize("gate,case", pairs, indirect=["gate"],
                             ids=["%s-%s" % (m, c.name) for m, c in pairs],
                             scope="module")
    elif "gate" in metafunc.fixturenames:
        modes = getattr(metafunc.function, "modes", MODES)
        metafunc.parametrize("gate", modes, indirect=True, scope="module")


def place(item):
    """The attempts in one mode stand together, in the order of the file, so
    that penstock is started once for each; what starts it by itself comes
    behind them."""
    spec = getattr(item, "callspec", None)
    gate = spec.params.get("gate") if spec else None
    return (MODES.index(gate), item.location[1]) if gate else (len(MODES), 0)


def pytest_collection_modifyitems(items):
    files = list(dict.fromkeys(i.fspath for i in items))
    items.sort(key=lambda i: (files.index(i.fspath), place(i)))


class Gate:
    def __init__(self, lab, leaks):
        self.lab, self.leaks = lab, leaks


@pytest.fixture(scope="module")
def gate(request, lab):
    """penstock in one mode, and what the file's attempts gave before it."""
    mode = request.param
    lab.unguarded(mode)
    if getattr(request.module, "PLAIN_PROXY", False):
        lab.plain()
    leaks = {}
    for c in getattr(request.module, "CASES", []):
        if mode in c.modes:
            leaks[c.name] = lab.watched(c.attempt, c.logged)
    lab.up(mode, **getattr(request.module, "SETTINGS", {}))
    yield Gate(lab, leaks)
    lab.down()
