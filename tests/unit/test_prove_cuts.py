"""What `make prove-cuts` counts as a failure."""

from __future__ import annotations

from typing import Any

import pytest

from tools.prove_cuts import LOSES, counted, plan_text, wrong
from vmtax.plan.schema import parse


def answer(
    treatment: str, lost: int, control: int = 9, states: int = 30, end: str = "stack-cut", gone: int | None = None
) -> dict[str, Any]:
    found = {"end": end, "states": states, "lost": lost, "control": {"lost": control, "states": states}}
    found |= {"states_without_disk": gone, "lost_without_disk": gone and lost}
    return {"failures": [], "durability": {"evidence": [{"treatment": treatment, "ends": [found]}]}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (answer("vm", 0), []),
        (answer("vm disk.cache=unsafe", 3), []),
        (answer("vm", 1), ["vm: 1 of 30 states lost data, but it must not"]),
        (answer("vm zfs.sync=disabled", 0), ["vm zfs.sync=disabled: 0 of 30 states lost data, and it must"]),
        (answer("vm", 0, control=0), ["vm: what never flushes lost nothing"]),
        (answer("vm disk.volume=raidz1-zvol", 0, gone=15), []),
        (answer("vm disk.volume=raidz1-zvol", 0), ["vm disk.volume=raidz1-zvol: no state without a disk"]),
        (answer("vm", 0, states=0), ["vm: no state of the host's disk"]),
        (answer("vm", 0, end="power-cut"), ["vm: no state of the host's disk"]),
        (
            {"failures": [{"treatment": "vm", "error": "gone"}], "durability": None},
            ["vm: gone", "no trial has a result"],
        ),
    ],
)
def test_what_is_wrong(data: dict[str, Any], words: list[str]) -> None:
    assert list(wrong(data)) == words


def test_what_was_not_tried_is_wrong_too() -> None:
    assert list(wrong(answer("vm", 0), ["vm", "vm disk.volume=lvm"])) == ["vm disk.volume=lvm: was not tried"]


@pytest.mark.parametrize(("raidz", "number", "losing"), [(False, 13, 5), (True, 4, 2)])
def test_the_plan_has_what_must_lose_and_what_must_not(raidz: bool, number: int, losing: int) -> None:
    names = [one.name for one in parse(plan_text(30, 1, raidz=raidz)).treatments()[0]]
    lose = [name for name in names if any(level in name.split() for level in LOSES)]
    assert len(names) == number and len(lose) == losing


def test_every_configuration_is_counted() -> None:
    assert list(counted(answer("vm", 1))) == ["vm: stack-cut lost 1 of 30, control 9 of 30"]
    (said,) = counted(answer("vm", 2, gone=15))
    assert said == "vm: stack-cut lost 2 of 30, 2 of 15 with a disk gone, control 9 of 30"
