"""States of several disks in the same power cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.unit.test_power_cut import FLUSH, SECTOR, SIZE, WRITE, Request, block, log_of
from vmtax.storage import power_cuts
from vmtax.storage.power_cut import CutMoment, History, ReplayedDisk, opened
from vmtax.storage.power_cuts import DiskState, Lengths, ReplayedDisks, States, at_rest, lengths

LETTERS = "abc"  # a disk each
ROUNDS = 8  # in each of which a disk is written to, flushed, and written to again


def requests(letter: str) -> list[Request]:
    each = ((WRITE, block(letter)), (FLUSH, b""), (WRITE, block(letter.upper())))
    return [(flags, 8 * number, data) for number in range(ROUNDS // 2) for flags, data in each]


@contextlib.contextmanager
def histories(directory: Path, letters: str = LETTERS) -> Iterator[list[History]]:
    with contextlib.ExitStack() as ends:
        found = []
        for letter in letters:
            (directory / letter).write_bytes(log_of(requests(letter)))
            found.append(ends.enter_context(opened(directory / letter)))
        yield found


def instants(of: Sequence[History]) -> list[Lengths]:
    """The first disk is ahead of the others by one request."""
    number = len(of[0].entries)
    return [
        tuple(each.entries[min(place + (n == 0), number - 1)].end for n, each in enumerate(of))
        for place in range(number)
    ]


def all_written(of: Sequence[History], at: Lengths) -> DiskState:
    """All that was written until then."""
    return DiskState(tuple(CutMoment(each.place(end), None) for each, end in zip(of, at, strict=True)))


def nothing(data: memoryview) -> dict[str, int]:
    return {}


def test_an_instant_is_what_is_the_same_when_it_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [tmp_path / name for name in LETTERS]
    for number, log in enumerate(logs):
        log.write_bytes(bytes(number))
    assert lengths(logs) == at_rest(logs, 1.0) == (0, 1, 2)

    class Growing:
        """A log of which each look finds one byte more."""

        def __init__(self) -> None:
            self.looks = 0

        def stat(self) -> object:
            self.looks += 1
            return type("Stat", (), {"st_size": self.looks})

    assert lengths([logs[1], Growing()]) is None  # type: ignore[list-item]
    assert lengths([Growing()]) == (1,), "any length of one log is an instant"  # type: ignore[list-item]
    monkeypatch.setattr(power_cuts, "STILL_SECONDS", 0.005)
    assert at_rest([logs[1], Growing()], 0.02) is None  # type: ignore[list-item]


def test_states_are_of_instants_alone_half_of_them_without_a_disk_and_half_whole(tmp_path: Path) -> None:
    with histories(tmp_path) as of:
        heard = [(at, {"w": number}) for number, at in enumerate(instants(of))]
        states = States(of, heard, nothing)
        drawn = states.draw(40, seed=1)
        places = {tuple(each.place(length) for each, length in zip(of, at, strict=True)) for at, _ in heard}
        assert {tuple(moment.place for moment in state.moments) for state in drawn} <= places
        keys = [[moment.place for moment in state.moments] for state in drawn]
        assert keys == sorted(keys) and drawn == states.draw(40, seed=1) != states.draw(40, seed=2)
    assert len(drawn) == 40 and sum(bool(state.gone) for state in drawn) == 20
    assert {state.gone for state in drawn} == {(), (0,), (1,), (2,)}
    for lacks in (False, True):
        some = [state for state in drawn if bool(state.gone) == lacks]
        assert sum(all(moment.seed is None for moment in state.moments) for state in some) == 10
        assert max(keys) in [[moment.place for moment in state.moments] for state in some], "the last is among them"
        assert all(state.moments[number].seed is None for state in some for number in state.gone)


def test_one_of_several_disks_lacks_writes_or_some_or_all_of_them(tmp_path: Path) -> None:
    """What depends on two disks at once is shown only by a state in which both lack something."""
    with histories(tmp_path) as of:
        written = tuple(each.entries[-1].end for each in of)
        drawn = States(of, [(written, {})], nothing).draw(40, seed=1)
    lacking = [sum(moment.seed is not None for moment in state.moments) for state in drawn]
    for gone, numbers in ((False, {0, 1, 2, 3}), (True, {0, 1, 2})):
        assert {n for n, state in zip(lacking, drawn, strict=True) if bool(state.gone) == gone} == numbers


def test_what_was_acknowledged_is_of_the_instant_and_of_all_disks(tmp_path: Path) -> None:
    """What was heard at an instant with the same length of one log, but more in another, came later."""

    def written(data: memoryview) -> dict[str, int]:
        return {"seen": 9} if data[:1] == b"B" else {}

    with histories(tmp_path) as of:
        first, second = of[0].entries[2].end, of[1].entries[1].end
        third = of[1].entries[2].end
        heard = [((first, second, 0), {"w": 1}), ((first, second, 0), {"w": 2}), ((first, third, 0), {"w": 7})]
        states = States(of, heard, written)
        early, late = all_written(of, (first, second, 0)), all_written(of, (first, third, 0))
        assert states.acknowledged(early) == {"w": 2}, "the latest of the same instant"
        assert states.acknowledged(late) == {"w": 7, "seen": 8}
        assert states.words(early) == "after 3, 2, 0 of 12, 12, 12 requests"
        lacking = DiskState((CutMoment(3, 5), CutMoment(2, None), CutMoment(0, None)), (1,))
        words = "after 3, 2, 0 of 12, 12, 12 requests, without some of those since the last flush (seed 5, none, none)"
        assert states.words(lacking) == f"{words}, disk 2 gone"


def test_a_disk_that_is_gone_is_empty_and_the_others_are_as_at_that_moment(tmp_path: Path) -> None:
    targets = [tmp_path / f"{letter}.target" for letter in LETTERS]
    before = tmp_path / "before"
    before.write_bytes(bytes(SIZE))
    for target in targets:
        target.write_bytes(b"x" * SIZE)
    with histories(tmp_path) as of:
        disks = ReplayedDisks(
            [ReplayedDisk(each, before, tmp_path / f"{n}.kept") for n, each in enumerate(of)], targets
        )
        early = all_written(of, tuple(each.entries[2].end for each in of))
        late = all_written(of, tuple(each.entries[3].end for each in of))
        disks.write(DiskState(early.moments, (1,)))
        found = [target.read_bytes() for target in targets]
        assert found == [block("A") + bytes(SIZE - 8 * SECTOR), bytes(SIZE), block("C") + bytes(SIZE - 8 * SECTOR)]
        disks.write(DiskState(late.moments, (0, 2)))
        found = [target.read_bytes() for target in targets]
        assert found == [bytes(SIZE), block("B") + block("b") + bytes(SIZE - 16 * SECTOR), bytes(SIZE)]
        disks.close()


def test_one_disk_alone_has_every_place_of_its_log(tmp_path: Path) -> None:
    with histories(tmp_path, "a") as of:
        heard = [((of[0].entries[1].end,), {"w": 1}), ((of[0].entries[5].end,), {"w": 3})]
        states = States(of, heard, nothing)
        drawn = states.draw(12, seed=3)
        assert {state.gone for state in drawn} == {()} and len(drawn) == 12
        assert {state.moments[0].place for state in drawn} > {12}, "not only what was noted"
        known = [states.acknowledged(DiskState((CutMoment(place, None),))) for place in (1, 2, 5, 6)]
        assert known == [{}, {"w": 1}, {"w": 1}, {"w": 3}]


def test_without_an_instant_or_room_there_is_no_state(tmp_path: Path) -> None:
    with histories(tmp_path) as of:
        assert States(of, [], nothing).draw(10, seed=1) == []
        assert len(States(of, [(instants(of)[-1], {})], nothing).draw(1, seed=1)) == 1
        flushed = tuple(each.entries[1].end for each in of)
        few = States(of, [(flushed, {})], nothing).draw(20, seed=1)
        assert {state.gone for state in few} == {(), (0,), (1,), (2,)} and len(few) == 4, "all that there are"
