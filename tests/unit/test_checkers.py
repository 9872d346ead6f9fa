"""Guests that check states: each state in one of them, and no loss that only one guest has seen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command import HANGS
from tests.unit.test_power_cut import FLUSH, SIZE, WRITE, Request, block, log_of
from vmtax.design.disk import DiskSettings
from vmtax.experiment import checkers
from vmtax.experiment.checkers import WORTH, Checks, StateResult
from vmtax.hypervisor import BootFailed
from vmtax.machine import MachineError
from vmtax.storage import Backing
from vmtax.storage.copies import Copies
from vmtax.storage.power_cut import opened
from vmtax.storage.power_cuts import DiskState, States
from vmtax.testbed.session.base import Cut
from vmtax.workload.durability import Durability, DurabilityParameters

Look = Callable[[int, Path], bool]  # number of the guest, its file -> whether a record is lost
WORKLOAD = Durability(DurabilityParameters(writers=("append-fsync-4k",)))


class FakeVerifier:
    """Says what `look` finds in the file of its guest."""

    def __init__(self, guest: Any, *rest: object) -> None:
        self._guest = guest

    def verify(self, acknowledged: object, image: str) -> StateResult:
        lost = int(self._guest.look(self._guest.number, self._guest.file))
        return StateResult({"file_system": "", "writers": {"append-fsync-4k": {"lost": lost, "torn": 0}}}, image)

    def end(self) -> None:
        self._guest.is_over = True


@contextlib.contextmanager
def made(directory: Path, look: Look, monkeypatch: pytest.MonkeyPatch, at_once: int = 1) -> Iterator[Any]:
    """Checks of 40 states or more, all guests that they booted, and the states."""
    monkeypatch.setattr(checkers, "Verifier", FakeVerifier)
    kept = directory / "copies"
    kept.mkdir()
    copies = Copies(SimpleNamespace(), kept, (), DiskSettings(), SIZE)  # type: ignore[arg-type]
    copies.keep_before(SimpleNamespace(path="host"), Backing(PurePosixPath("/disk"), size=SIZE))  # type: ignore[arg-type]
    each: list[Request] = [(WRITE, 8 * (number % 4), block(chr(97 + number % 26))) for number in range(60)]
    (directory / "log").write_bytes(log_of([*each, (FLUSH, 0, b"")]))
    guests: list[Any] = []

    @contextlib.contextmanager
    def boot(own: Copies, below: Sequence[Copies]) -> Iterator[Any]:
        guest = SimpleNamespace(number=len(guests), file=own.disk, look=look, is_over=False)
        guests.append(guest)
        yield guest
        assert guest.is_over, "the program has ended before its guest does"

    cut = Cut("/dev/vda", Any, "", Any, PurePosixPath("/log"), copies, boot, at_once)  # type: ignore[arg-type]
    with opened(directory / "log") as history:
        states = States([history], [((0,), {"append-fsync-4k": 1})], lambda data: {})
        yield Checks(cut, WORKLOAD, [history], states), guests, states.draw(3 * WORTH, seed=1)
    assert [path.name for path in kept.iterdir() if path.is_dir()] == [], "nothing is left of the others' files"


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_each_state_is_checked_once_in_one_of_the_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    barrier = threading.Barrier(min(at_once, 3), timeout=HANGS)
    met = threading.local()

    def look(number: int, file: Path) -> bool:
        if not getattr(met, "all", False):
            barrier.wait()  # for the others, which work at the same time
            met.all = True
        return False

    with made(tmp_path, look, monkeypatch, at_once) as (checks, guests, drawn), checks.opened() as first:
        found = [state for state, _ in checks.checked(first, drawn)]
    assert len(found) == len(drawn) and set(found) == set(drawn)
    assert len(guests) == min(at_once, len(drawn) // WORTH, 3)


def test_all_guests_see_the_same_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def look(number: int, file: Path) -> bool:
        seen.append(file.read_bytes())
        return False

    contents = []
    for at_once in (1, 3):
        directory = tmp_path / str(at_once)
        directory.mkdir()
        seen.clear()
        with made(directory, look, monkeypatch, at_once) as (checks, _, drawn), checks.opened() as first:
            list(checks.checked(first, drawn))
        contents.append(sorted(seen))
    assert contents[0] == contents[1] and len(set(contents[0])) > 1


def test_a_loss_counts_where_another_guest_finds_it_in_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bytes]] = []

    def look(number: int, file: Path) -> bool:
        seen.append((number, file.read_bytes()))
        return True

    with made(tmp_path, look, monkeypatch) as (checks, guests, drawn), checks.opened() as first:
        found = list(checks.checked(first, drawn))
    assert all(each.is_loss({"append-fsync-4k": 1}) for _, each in found) and len(found) == len(drawn)
    assert [number for number, _ in seen] == [0, 1, *[0] * (len(drawn) - 1)], "the first loss alone is looked at again"
    assert seen[0][1] == seen[1][1] and len(guests) == 2


@pytest.mark.parametrize("at_once", [1, 3])
def test_what_only_one_guest_sees_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    barrier, met = threading.Barrier(at_once, timeout=HANGS), threading.local()

    def look(number: int, file: Path) -> bool:
        if not getattr(met, "all", False):
            barrier.wait()  # so that each of them has a state
            met.all = True
        return number == at_once - 1

    def check(checks: Checks, drawn: Sequence[DiskState]) -> None:
        with checks.opened() as first:
            list(checks.checked(first, drawn))

    with (
        made(tmp_path, look, monkeypatch, at_once) as (checks, guests, drawn),
        pytest.raises(
            MachineError, match=r"two guests checked the same state and do not agree, so nothing counts: aft"
        ),
    ):
        check(checks, drawn)
    assert len(guests) == at_once + 1 and all(guest.is_over for guest in guests)


def test_a_guest_that_does_not_come_up_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path, lambda number, file: False, monkeypatch, 3) as (checks, guests, drawn):
        boot = checks.cut.boot_checker

        def fail(own: Copies, below: Sequence[Copies]) -> Any:
            if guests:
                raise BootFailed("no memory")
            return boot(own, below)

        checks.cut = replace(checks.cut, boot_checker=fail)
        with checks.opened() as first:
            found = [state for state, _ in checks.checked(first, drawn)]
    assert len(guests) == 1 and set(found) == set(drawn)
