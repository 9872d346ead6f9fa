"""The log of writes, and the states that are rebuilt of it."""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtax.core.machines import Outcome
from vmtax.design.disk import DiskSettings
from vmtax.machine import MachineError
from vmtax.storage.copies import Copies
from vmtax.storage.power_cut import BLOCK, CutMoment, ReplayedDisk, copy_sparse, known, opened
from vmtax.storage.write_log import BadLog, entries

SECTOR = 512
WRITE, FLUSH, DISCARD = 0, 1, 4
Request = tuple[int, int, bytes]  # flags, sector, data; of a discard as many bytes as it frees


def log_of(requests: Sequence[Request]) -> bytes:
    """As QEMU's blklogwrites writes it."""
    text = struct.pack("<QQQL", 0x6A736677736872, 1, len(requests), SECTOR).ljust(SECTOR, b"\0")
    for flags, sector, data in requests:
        text += struct.pack("<QQQQ", sector, len(data) // SECTOR, flags, 0).ljust(SECTOR, b"\0")
        text += b"" if flags & DISCARD else data
    return text


def block(letter: str, sectors: int = 8) -> bytes:
    return letter.encode() * SECTOR * sectors


REQUESTS: list[Request] = [
    (WRITE, 0, block("a")),
    (FLUSH, 0, b""),
    (WRITE, 8, block("b")),
    (WRITE, 16, block("c", 16)),
    (FLUSH, 0, b""),
    (WRITE, 0, block("d")),
    (DISCARD, 8, block("b")),
]
SIZE = 64 * SECTOR


def states(directory: Path, requests: Sequence[Request], moments: Sequence[CutMoment]) -> list[bytes]:
    log, before, target = directory / "log", directory / "before", directory / "target"
    log.write_bytes(log_of(requests))
    before.write_bytes(bytes(SIZE))
    target.touch()
    found = []
    with opened(log) as history:
        disk = ReplayedDisk(history, before, directory / "kept")
        for moment in moments:
            disk.write(moment, target)
            found.append(target.read_bytes())
        disk.close()
    (directory / "kept").unlink()
    return found


def test_each_prefix_of_the_log_is_a_state(tmp_path: Path) -> None:
    found = states(tmp_path, REQUESTS, [CutMoment(place, None) for place in range(8)])
    assert found[0] == bytes(SIZE)
    assert found[1] == found[2] == block("a") + bytes(SIZE - 8 * SECTOR)
    assert found[4] == block("a") + block("b") + block("c", 16) + bytes(SIZE - 32 * SECTOR)
    assert found[7] == block("d") + bytes(8 * SECTOR) + block("c", 16) + bytes(SIZE - 32 * SECTOR)


def test_what_was_flushed_is_in_every_state_and_what_was_not_may_be_missing_or_torn(tmp_path: Path) -> None:
    seen = states(tmp_path, REQUESTS, [CutMoment(4, seed) for seed in range(200)])
    assert all(state.startswith(block("a")) for state in seen)
    third = {state[16 * SECTOR : 32 * SECTOR] for state in seen}
    halves = {block("c") + bytes(8 * SECTOR), bytes(8 * SECTOR) + block("c")}
    assert third == {block("c", 16), bytes(16 * SECTOR), *halves}
    after = states(tmp_path, REQUESTS, [CutMoment(5, seed) for seed in range(20)])
    assert set(after) == {block("a") + block("b") + block("c", 16) + bytes(SIZE - 32 * SECTOR)}


@pytest.mark.parametrize("seen", [3, 4, 6])
def test_a_disk_that_was_copied_while_it_was_written_to_is_right_from_the_copys_end_on(
    tmp_path: Path, seen: int
) -> None:
    """The copy began after two requests and ended after `seen`: of what was written meanwhile it has one half."""
    whole = states(tmp_path, REQUESTS, [CutMoment(place, None) for place in range(8)])
    half = SIZE // 2
    log, before, target = tmp_path / "log", tmp_path / "copied", tmp_path / "target"
    before.write_bytes(whole[seen][:half] + whole[2][half:])
    with opened(log) as history:
        since = history.entries[1].end
    with opened(log, since) as history:
        disk = ReplayedDisk(history, before, tmp_path / "kept")
        for place in range(seen, 8):
            disk.write(CutMoment(place - 2, None), target)
            assert target.read_bytes() == whole[place]
        disk.close()
        assert history.place(since) == 0 and history.place(10**6) == 5


def test_moments_are_different_in_order_and_half_of_them_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(log_of(REQUESTS * 20))
    with opened(tmp_path / "log") as history:
        few, many = history.moments(10, 40, seed=1), history.moments(0, 1000, seed=1)
        lost = [(moment.place, tuple(sorted(history.missing(moment).items()))) for moment in many]
    assert [moment.place for moment in few] == sorted(moment.place for moment in few)
    assert len(few) == 40 and sum(moment.seed is None for moment in few) == 20 and few[0].place >= 10
    assert 140 in {moment.place for moment in few if moment.seed is None}
    whole = [moment.place for moment in many if moment.seed is None]
    writes = [place for place in range(1, 141) if REQUESTS[(place - 1) % 7][0] != FLUSH]
    assert whole == writes, "a flush changes nothing"
    assert len(set(lost)) == len(lost), "no state is looked at twice"
    assert all(missing for (_, missing), moment in zip(lost, many, strict=True) if moment.seed is not None)
    assert len(many) < 1000, "a short log has fewer different states"


@pytest.mark.parametrize("writes", [140, 320])
def test_half_of_the_states_lack_writes_however_many_there_are_to_choose_from(tmp_path: Path, writes: int) -> None:
    """300 states that all had every write would show nothing, and say that a disk is durable."""
    (tmp_path / "log").write_bytes(log_of([(WRITE, 8 * (n % 8), block("a")) for n in range(writes)]))
    with opened(tmp_path / "log") as history:
        drawn = history.moments(0, 300, seed=1)
        missing = [len(history.missing(moment)) for moment in drawn]
        unflushed = [len(history.unflushed(moment.place)) for moment in drawn]
    assert len(drawn) == 300 and sum(count == 0 for count in missing) in (writes, 150)
    pairs = list(zip(missing, unflushed, strict=True))
    assert sum(count == 1 < of for count, of in pairs) >= 25, "one of several"
    assert sum(1 < count < of for count, of in pairs) >= 25, "several, but not all"
    assert sum(1 < count == of for count, of in pairs) >= 25, "all of several"


def test_of_the_writes_after_a_flush_one_is_missing_or_some_or_all(tmp_path: Path) -> None:
    """About a third of the states each: one, any number, all."""
    (tmp_path / "log").write_bytes(log_of([(FLUSH, 0, b""), *((WRITE, 8 * n, block("a")) for n in range(5))]))
    with opened(tmp_path / "log") as history:
        numbers = Counter(len(history.missing(CutMoment(6, seed))) for seed in range(600))
    assert sorted(numbers) == [1, 2, 3, 4, 5]
    assert min(numbers[1], numbers[5]) > 600 / 4 and min(numbers[2], numbers[3], numbers[4]) > 600 / 30


def test_what_was_acknowledged_is_known_from_where_the_log_was_longer(tmp_path: Path) -> None:
    text = log_of(REQUESTS)
    (tmp_path / "log").write_bytes(text)
    with opened(tmp_path / "log") as history:
        third = history.entries[2].end
        heard = [(third, {"append": 3}), (third + SECTOR, {"append": 4}), (len(text), {"append": 9})]
        found = known(history, heard, lambda data: {"other": 7} if data[:1] == b"d" else {})
    append = [each.get("append", 0) for each in found]
    assert append == [0, 0, 0, 3, 4, 4, 4, 9]
    assert [each.get("other", 0) for each in found] == [0, 0, 0, 0, 0, 0, 6, 6]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "empty"),
        (b"x" * 4096, "does not begin"),
        (log_of([]) + b"\xff" * SECTOR, "no entry at byte 512"),
        (log_of([(2, 0, block("a"))]), "no entry"),
    ],
)
def test_what_is_no_such_log_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(BadLog, match=words):
        list(entries(memoryview(text)))


def test_a_log_ends_where_qemu_was_killed() -> None:
    whole = log_of(REQUESTS)
    for length in range(SECTOR, len(whole), 100):
        found = list(entries(memoryview(whole[:length])))
        assert all(entry.end <= length for entry in found)
    assert len(list(entries(memoryview(whole + bytes(4096))))) == len(REQUESTS)
    # No flush, no superblock: cache=unsafe
    assert len(list(entries(memoryview(bytes(SECTOR) + whole[SECTOR:])))) == len(REQUESTS)


@given(st.binary(max_size=3000))
def test_any_bytes_are_a_log_or_refused(text: bytes) -> None:
    with contextlib.suppress(BadLog):
        assert all(entry.end <= len(text) for entry in entries(memoryview(text)))


def test_copies_have_holes_where_there_were_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.truncate(64 * 2**20)
        file.seek(20 * 2**20)
        file.write(b"x" * BLOCK)
    with target.open("wb") as file:
        copy_sparse(source, file.fileno())
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < 2**20


def test_no_room_for_a_converted_state_is_no_damage_of_its_image(tmp_path: Path) -> None:
    def try_run(*argv: str) -> Outcome:
        full = "convert" in argv
        words = "qemu-img: error while writing: No space left on device" if full else ""
        return Outcome("host", argv, int(full), "", words, 0.1)

    local: Any = SimpleNamespace(try_run=try_run)
    copies = Copies(local, tmp_path, ("qemu-img",), DiskSettings(format="qcow2"), BLOCK)
    with pytest.raises(MachineError, match="no room to convert a state of the disk"):
        copies.check_and_convert()
