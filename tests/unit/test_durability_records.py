"""Plan `durability`: names of writers, and records, of which every sector says which one it is."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmtax.workload.durability import records
from vmtax.workload.durability.records import FLUSHES, MAGIC, MODES, PLAIN, SECTOR, issued, record

# Names.


def test_names() -> None:
    assert len(PLAIN) == len(MODES) * len(FLUSHES) * 5 + 5
    assert not [name for name in PLAIN if records.writer_problem(name)]
    assert records.writer_problem("lying-append-dsync-64k") is None
    assert records.kind_of("lying-rename-fsync-1m") == ("rename", "fsync", 2**20, True)
    assert records.kind_of("control") == ("append", "never", 4096, False)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("", "MODE-FLUSH-SIZE with the mode append, overwrite or rename"),
        ("fsync-append-4k", "with the mode append, overwrite or rename"),
        ("append", "append-FLUSH-SIZE, like append-fsync-4k"),
        ("append-fsync-4k-4k", "append-FLUSH-SIZE, like append-fsync-4k"),
        ("append-sync_file_range-4k", "must be fsync, fdatasync or dsync, not sync_file_range"),
        ("rename-fsync-8k", "must be 4k, 16k, 64k, 256k or 1m, not 8k"),
        ("sqlite", "must be sqlite-wal, sqlite-rollback or sqlite-rollback-full"),
        ("lying-control", "write control"),
        ("lying-lying-control", "MODE-FLUSH-SIZE"),
    ],
)
def test_a_wrong_name_says_what_is_right(name: str, right: str) -> None:
    problem = records.writer_problem(name)
    assert problem is not None and right in problem and "\n" not in problem and problem.startswith(f"{name}: ")


# Records.


def test_every_sector_says_what_it_is() -> None:
    data = record("append-fsync-16k", 7, 16384)
    assert len(data) == 16384
    for index in range(32):
        sector = data[index * SECTOR : (index + 1) * SECTOR]
        assert records.place_of(sector, PLAIN) == ("append-fsync-16k", 7, index)
        assert sector.startswith(records.header("append-fsync-16k", 7, index))
        assert records.place_of(sector[:-1] + bytes([sector[-1] ^ 1]), PLAIN) is None, "a bit of its body"
        assert records.place_of(sector[:12] + b"\x08" + sector[13:], PLAIN) is None, "its number"


def test_records_differ_and_do_not_shrink() -> None:
    data = b"".join(record(name, number, 4096) for name in ("control", "rename-fsync-4k") for number in range(1, 65))
    assert len(zlib.compress(data)) > 0.95 * len(data)
    assert data.count(MAGIC) == len(data) // SECTOR, "it is at the beginning of each sector and nowhere else"
    long = record("append-fsync-1m", 1, 2**20)
    assert len(zlib.compress(long)) > 0.95 * len(long) and long.count(MAGIC) == 2048
    assert len({long[at : at + 64] for at in range(0, len(long), 64)}) == len(long) // 64, "no block occurs twice"


NAMES = ("control", "append-fsync-4k", "sqlite-wal")
PIECES = st.one_of(
    st.binary(max_size=40),
    st.just(MAGIC),
    st.builds(
        lambda name, number, begin, end: record(name, number, 1024)[begin : 1024 - end],
        st.sampled_from((*NAMES, "overwrite-dsync-1m")),
        st.integers(0, 5) | st.integers(0, 2**64 - 1),
        st.integers(0, 40),
        st.integers(0, 1000),
    ),
)


def plain_issued(data: bytes) -> dict[str, int]:
    """Every place looked at."""
    highest: dict[str, int] = {}
    for at in range(len(data)):
        here = data[at : at + records.HEADER]
        if here.startswith(MAGIC) and len(here) == records.HEADER:
            _, _, number, index = records.FRONT.unpack_from(here)
            for name in NAMES:
                if here == records.header(name, number, index) and number:
                    highest[name] = max(number, highest.get(name, 0))
    return highest


@given(st.lists(PIECES, max_size=8).map(b"".join), st.integers(1, 3000))
@example(record("control", 3, 512), 500)
def test_issued(data: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "CHUNK", chunk)  # headers are found across the borders of chunks
        assert issued(data, NAMES) == plain_issued(data)
        assert issued(memoryview(data), iter(NAMES)) == plain_issued(data)


def test_a_damaged_header_is_not_issued() -> None:
    data = bytearray(b"x" * 100 + record("control", 4, 512) + record("control", 9, 512))
    assert issued(data, ["control"]) == {"control": 9}
    data[100 + 512 + 14] ^= 1  # the number
    assert issued(data, ["control"]) == {"control": 4}
