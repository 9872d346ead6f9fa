"""The faults that `make prove-tests` plants can still be planted, and what it does with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.conftest import pytest_collection_modifyitems
from tools.faults import FAULTS, Fault
from tools.proofs import ROOT
from tools.prove_tests import (
    INTEGRATION,
    SOURCE,
    UNIT,
    VARIATIONS,
    Copy,
    Map,
    Tier,
    Verdict,
    function,
    in_order,
    innermost,
    line_of,
    planted,
    probed,
    prove,
    table,
)
from tools.run_tests import TIERS


@pytest.mark.parametrize("path", dict.fromkeys(fault.path for fault in FAULTS))
def test_each_faults_line_stands_once_in_a_function_of_its_module_and_the_fault_is_python(path: str) -> None:
    text = (ROOT / SOURCE / path).read_text(encoding="utf-8")
    faults = [fault for fault in FAULTS if fault.path == path]
    for fault in faults:
        _, is_in_function = innermost(text, line_of(text, fault.acts or fault.line))
        assert is_in_function, "tests reach what runs when they run, not what runs when its module is imported"
        changed = planted(text, fault)
        compile(changed, path, "exec")
        assert [fault.line, fault.fault] == [
            line.strip()
            for pair in zip(text.splitlines(), changed.splitlines(), strict=True)
            if pair[0] != pair[1]
            for line in pair
        ]
    compile(probed(text, [(fault, Path("file")) for fault in faults]), path, "exec")


def test_there_are_faults_in_seventy_modules_or_more_over_all_parts() -> None:
    modules = {fault.path for fault in FAULTS}
    parts = {path.name for path in (ROOT / SOURCE).iterdir() if path.is_dir() and path.name[0] != "_"}
    assert len(modules) >= 70
    assert {path.partition("/")[0] for path in modules} == parts


TEXT = '''def sort(number):
    """Of a number."""
    if number < 0:
        return "low"
    elif number > 9 and (
        number < 99
    ):
        return "high"
    return "middle"
'''


@pytest.mark.parametrize("line", ["elif number > 9 and (", "number < 99"])
def test_a_probe_writes_down_the_test_that_reaches_its_line(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "reached"
    space: dict[str, object] = {}
    exec(probed(TEXT, [(Fault("", line, "", ""), file)]), space)
    sort = space["sort"]
    assert callable(sort)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/unit/test_x.py::test_y[a b-(c)] (call)")
    assert sort(50) == "high"
    assert not file.exists(), "it writes only where the file was made for it"
    file.touch()
    assert [sort(50), sort(5), sort(-5)] == ["high", "middle", "low"]
    assert {function(name) for name in file.read_text().splitlines()} == {"tests/unit/test_x.py::test_y"}


def test_a_line_that_stands_twice_is_no_place_for_a_fault() -> None:
    for line in ("return", 'return "none"'):
        with pytest.raises(ValueError, match="0 lines"):
            line_of(TEXT, line)
    with pytest.raises(ValueError, match="2 lines"):
        line_of(TEXT * 2, 'return "low"')


def test_the_quickest_tests_are_asked_first_and_those_that_fail_anyway_not_at_all() -> None:
    lines = "t.py::slow[1] (setup)\nt.py::quick (call)\n\nt.py::slow[2] (call)\nt.py::fails (call)\n"
    seconds = {"t.py::slow": 2.0, "t.py::quick": 0.1, "t.py::fails": 0.0}
    assert in_order(lines, seconds, {"t.py::fails"}) == ("t.py::quick", "t.py::slow")


def test_tests_are_selected_as_make_does() -> None:
    quick, long = INTEGRATION
    assert UNIT.markers in TIERS["unit"]["unit"] and VARIATIONS.markers in TIERS["variations"]["variations"]
    assert quick.markers in TIERS["test"]["integration"]
    assert long.markers == "machines or alone"
    assert {words[words.index("-m") + 1] for words in TIERS["machines"].values()} == {"machines and not alone", "alone"}


def test_the_last_line_counts_what_survived() -> None:
    one, other = Fault("a.py", "x", "y", "wrong"), Fault("b.py", "x", "z", "worse")
    caught, survived = Verdict(one, 3, UNIT.name, "t.py::test_a", 1.0), Verdict(other, 2, "", "", 1.0)
    *lines, last = table([caught, survived], (UNIT,))
    assert lines == ["a.py  wrong\n      unit tests: t.py::test_a", "b.py  worse\n      SURVIVED 2 tests: z"]
    assert last == ("2 faults in 2 modules: 1 caught by unit tests, 1 survived; integration tests were not asked")


def test_what_a_tier_leaves_is_asked_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = FAULTS[:2]
    asked_of = list[tuple[str, str]]()

    def map_of(_: Copy, tier: Tier, faults: Sequence[Fault], tests: Sequence[str]) -> Map:
        return Map(tier, tuple(("t.py::test",) for _ in faults), tuple(1.0 for _ in faults))

    def verdict(_: Copy, fault: Fault, number: int, of: Map) -> Verdict:
        asked_of.append((fault.line, of.tier.name))
        caught = fault is one or of.tier is VARIATIONS
        return Verdict(fault, 3, of.tier.name if caught else "", "t.py::test" if caught else "", 1.0)

    monkeypatch.setattr("tools.prove_tests.made_map", map_of)
    monkeypatch.setattr("tools.prove_tests.asked", verdict)
    monkeypatch.setattr("tools.prove_tests.FAULTS", (one, other))
    whole = argparse.Namespace(only="", tests=None)
    verdicts = prove(whole, cast(Copy, None), (UNIT, VARIATIONS, *INTEGRATION))
    assert asked_of == [(one.line, UNIT.name), (other.line, UNIT.name), (other.line, VARIATIONS.name)]
    assert [(each.tier, each.tests) for each in verdicts] == [(UNIT.name, 3), (VARIATIONS.name, 6)]


def test_of_a_varied_test_some_cases_run_always_spread_evenly() -> None:
    names = [f"t.py::test[{number}]" for number in range(7)]
    items = [Case(name, pytest.mark.varied(3).mark) for name in names] + [Case("t.py::other[0]", None)]
    pytest_collection_modifyitems(cast(list[pytest.Item], items))
    assert [item.nodeid for item in items if not item.is_variation] == [names[0], names[2], names[4], "t.py::other[0]"]


@dataclass
class Case:
    """What is collected of a test."""

    nodeid: str
    varied: pytest.Mark | None
    is_variation: bool = False

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.varied if name == "varied" else None

    def add_marker(self, name: str) -> None:
        self.is_variation = name == "variations"
