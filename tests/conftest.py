"""For all tests: a machine busy with emulated guests is slow now and then, and no property fails for that."""

import gc
import os
import signal
from collections import defaultdict

import pytest
from hypothesis import settings

settings.register_profile("busy", deadline=None, max_examples=10)  # each run draws others
settings.register_profile("many", deadline=None, max_examples=100)  # of the second tier
settings.load_profile("busy")
# In the background of a shell both are ignored, by programs that tests start as well, which then wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# Workers measure beside each other, and beside a run of the user's.
os.environ["VMTAX_LOCK"] = f"tests-{os.getpid()}"


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked `varied(n)`, n run always, spread evenly; the others are of the second tier."""
    cases = defaultdict[tuple[str, int], list[pytest.Item]](list)
    for item in items:
        if mark := item.get_closest_marker("varied"):
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, always), of_test in cases.items():
        kept = {len(of_test) * number // always for number in range(always)}
        for number, item in enumerate(of_test):
            if number not in kept:
                item.add_marker("machines" if "tests/integration/" in item.nodeid else "variations")


def pytest_collection_finish() -> None:
    """Modules and samples stay: to look for garbage among them again and again takes a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
