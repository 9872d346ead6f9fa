"""What people read and write, and that the two meet."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtax.core import units
from vmtax.core.records import Unit

M, X = units.MINUS, units.TIMES


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12_345, "1/s", "12.3 k/s"),
        (0.042, "1/s", "0.0420 /s"),
        (123, "1/s", "123 /s"),
        (999.96, "1/s", "1.00 k/s"),  # rounding carries into the next prefix
        (0.00125, "s", "1.25 ms"),
        (87.4e-6, "s", "87.4 \N{MICRO SIGN}s"),
        (3e-12, "s", "0.00300 ns"),
        (7230, "s", "7230 s"),  # seconds have no kilo
        (1.9e9, "B/s", "1.90 GB/s"),
        (1.6e9, "bit/s", "1.60 Gbit/s"),
        (2**30, "B", "1.07 GB"),
        (512, "B", "512 B"),  # counted, not measured: no decimals
        (3, "1", "3"),
        (0.25, "1", "0.250"),
        (4.2e-10, "s/B", "0.420 CPU\N{MIDDLE DOT}s/GB"),
        (5e15, "B", "5000 TB"),
        (-0.002, "s", f"{M}2.00 ms"),
        (0, "s", "0 s"),
        (0, "B/s", "0 B/s"),
        (float("nan"), "s", "nan s"),
    ],
)
def test_values(value: float, unit: str, text: str) -> None:
    assert units.format_value(value, unit) == text


@pytest.mark.parametrize(
    ("values", "unit", "row"),
    [
        ((38.1e9, 1.6e9, 0.65e9), "bit/s", ("Mbit/s", ["38100", "1600", "650"])),
        ((2.34e6, 110e3, None), "1/s", ("k/s", ["2340", "110", ""])),
        ((2.34e6, 110), "1/s", ("k/s", ["2340", "0.110"])),
        ((None, 4.22, 0.85), "s", ("ms", ["", "4220", "850"])),
        ((4.2e-10, 9e-9), "s/B", ("CPU\N{MIDDLE DOT}s/GB", ["0.420", "9.00"])),
        ((None, None), "B", ("B", ["", ""])),
    ],
)
def test_a_row_has_one_unit(values: tuple[float | None, ...], unit: str, row: tuple[str, list[str]]) -> None:
    assert units.format_row(values, unit) == row


def test_an_unknown_unit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'MB/s' is no base unit; these are: .*bit/s"):
        units.format_value(1.0, "MB/s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.85, "850 ms"),
        (0.9999, "1.0 s"),
        (4.21, "4.2 s"),
        (45, "45 s"),
        (59.7, "1 m 00 s"),
        (125, "2 m 05 s"),
        (3599.8, "1 h 00 m"),
        (5400, "1 h 30 m"),
        (52 * 3600 + 10, "2 d 04 h"),
        (-125, f"{M}2 m 05 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0194, "1.9 %"),
        (-0.003, f"{M}0.3 %"),
        (0.0004, "0.04 %"),
        (-1e-9, "0.0 %"),  # no minus before nothing
        (0.0996, "10 %"),
        (0.204, "20 %"),
        (0.957, "96 %"),
        (0.997, "99.7 %"),
        (0.9999, "99.99 %"),  # a ten-thousandth of the rate is left; not "100 %"
        (1.5, "150 %"),
        (8.9, "890 %"),
        (9.0, f"10{X}"),
        (23.2, f"24{X}"),
        (-23.0, f"24{X} better"),
    ],
)
def test_overheads(fraction: float, text: str) -> None:
    assert units.format_overhead(fraction) == text


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ((1.031, 1.024, 1.039), "+3.1 % (2.4–3.9)"),
        ((24, 20, 27), f"24{X} (20–27)"),
        ((13, 9.37, 17), f"13{X} (9–17)"),
        ((0.97, 0.96, 0.98), f"{M}3.0 % ({M}4.0…{M}2.0)"),
        ((1.003, 0.988, 1.008), f"+0.3 % ({M}1.2…0.8)"),  # a dash before a minus sign would be misread
        ((1.9, 1.6, 2.5), "+90 % (60–150)"),  # the interval takes the estimate's unit
        ((2.1, 1.8, 2.5), f"2.1{X} (1.8–2.5)"),
        ((30, 0.9, 40), f"30{X} (0.9–40)"),  # and does not hide that it includes one time
        ((1.3, 0.998, 1.6), f"+30 % ({M}0.2…60)"),
        ((1.953, 1.952, 1.954), "+95.3 % (95.2–95.4)"),
        ((0.0003, 0.0002, 0.0005), f"{M}99.97 % ({M}99.98…{M}99.95)"),  # not all of it
        ((1.003,), "+0.3 %"),
        ((1.5,), "+50 %"),
        ((1.994,), "+99 %"),
        ((1.995,), f"2.0{X}"),
        ((1,), "0.0 %"),
        ((1 - 1e-9, 1 - 1e-7, 1 + 1e-7), "0.0000 % (0.0000–0.0000)"),
        ((float("nan"),), "not measured"),
    ],
)
def test_costs(ratios: tuple[float, ...], text: str) -> None:
    assert str(units.format_cost(*ratios)) == text


def as_ratio(text: str, estimate: str) -> float:
    """What a printed number of a cost means, in the unit that the estimate names."""
    number = float(text.replace(M, "-").removesuffix(X).removesuffix(" %"))
    return 1 + number / 100 if estimate.endswith(" %") else number


RATIOS = st.floats(1e-6, 1e6) | st.floats(0.9, 1.1) | st.floats(1.9, 2.1)


@given(st.lists(RATIOS, min_size=3, max_size=3).map(sorted))
def test_a_costs_interval_is_in_the_unit_of_its_estimate_and_around_it(ratios: list[float]) -> None:
    low, estimate, high = ratios
    cost = units.format_cost(estimate, low, high)
    printed = [as_ratio(text, cost.estimate) for text in (cost.low, cost.estimate, cost.high)]
    assert printed == sorted(printed)
    for shown, true in zip(printed, ratios, strict=True):
        assert abs(shown - true) <= max(0.5 if cost.estimate.endswith(X) else 0.005, 0.005 * true) + 1e-9
    for shown, true in ((printed[0], low), (printed[2], high)):  # what a verdict hangs on
        assert (shown > 1) == (true > 1) or abs(true - 1) < 0.005


@given(RATIOS, RATIOS)
def test_a_greater_cost_never_reads_as_a_smaller_one(one: float, other: float) -> None:
    less, more = (units.format_cost(ratio).estimate for ratio in sorted((one, other)))
    assert as_ratio(less, less) <= as_ratio(more, more)
    assert more.endswith(X) or more.endswith(" %")


@given(RATIOS, st.lists(RATIOS, min_size=3, max_size=3).map(sorted))
def test_a_rate_and_a_time_of_the_same_work_cost_the_same(rate: float, ends: list[float]) -> None:
    low, estimate, high = ends
    assert units.time_ratio("lower", estimate, low, high) == (estimate, low, high)
    assert units.time_ratio("higher", 1 / rate)[0] == pytest.approx(rate)
    assert units.time_ratio("higher", estimate, low, high) == (1 / estimate, 1 / high, 1 / low)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 2**30),
        ("512MiB", 512 * 2**20),
        ("4k", 4096),
        ("1.5 G", 3 * 2**29),
        ("1GB", 10**9),
        ("250 kB", 250_000),
        ("1TiB", 2**40),
        ("4096", 4096),
        ("1b", 1),
        ("64K", 65_536),
        ("2M", 2**21),
        ("1g", 2**30),
        ("16Ki", 16_384),
        ("512Mi", 2**29),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20m", 1200),
        ("1h30m", 5400),
        ("90s", 90),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("200us", 200e-6),
        ("200 \N{MICRO SIGN}s", 200e-6),
        ("5ms", 5e-3),
        ("50000ns", 50e-6),
        ("20min", 1200),
        ("1m30s", 90),
        ("1s500ms", 1.5),
    ],
)
def test_parsed_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@given(st.integers(0, 2**60))
def test_a_size_is_written_as_it_is_read(size: int) -> None:
    assert units.parse_bytes(units.as_size(size)) == size
    assert units.as_size(units.parse_bytes(units.as_size(size))) == units.as_size(size)


@given(st.integers(1, 10**9).map(lambda thousandths: thousandths / 1000))
def test_a_duration_is_written_as_it_is_read(seconds: float) -> None:
    assert units.parse_duration(units.as_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


def test_one_spelling_for_each_size_and_duration() -> None:
    assert [units.as_size(size) for size in (0, 512, 65_536, 2**30, 3 * 2**29)] == (
        ["0B", "512B", "64KiB", "1GiB", "1536MiB"]
    )
    assert [units.as_duration(seconds) for seconds in (0, 0.5, 90, 1200, 5400, 172_800)] == (
        ["0s", "0.5s", "1m30s", "20m", "1h30m", "2d"]
    )
    assert units.same_quantity("64k", "64KiB") and units.same_quantity("0.2ms", "200us")
    assert not units.same_quantity("1m", "1ms") and not units.same_quantity("auto", "auto")


def test_parsed_percentages() -> None:
    assert [units.parse_percent(text) for text in ("2%", "0.5 %", "1.9%")] == [0.02, 0.005, 0.019]


@pytest.mark.parametrize("text", ["", "GiB", "-1k", "1XB", "1.5", "1 GiB extra", "0x10", "1e3"])
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size; write a number and a unit, such as 4k"):
        units.parse_bytes(text)


@pytest.mark.parametrize("text", ["", "90", "m", "30m1h", "-5s", "1h30", "5 weeks", "1M", "5mss"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration; .* such as 90s"):
        units.parse_duration(text)


@pytest.mark.parametrize("text", ["", "2", "0.02", "%", "-2%", "2%%"])
def test_no_percentage(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no percentage; .* such as 2%"):
        units.parse_percent(text)


@given(st.integers(0, 2**60), st.sampled_from(["KiB", "MiB", "k", "G", "kB", "TB", "B", ""]))
def test_sizes_round_trip(number: int, unit: str) -> None:
    size = units.parse_bytes(f"{number}{unit}")
    assert size == number * units.parse_bytes(f"1{unit}")
    assert units.parse_bytes(str(size)) == size


@given(st.integers(10, 86_399))
def test_what_is_printed_as_a_duration_can_be_typed(seconds: int) -> None:
    back = units.parse_duration(units.format_duration(seconds))
    assert back == seconds if seconds < 3600 else abs(back - seconds) <= 30


@given(st.floats(1e-8, 8.9))
def test_what_is_printed_as_an_overhead_can_be_typed(fraction: float) -> None:
    back = units.parse_percent(units.format_overhead(fraction))
    assert back == pytest.approx(fraction, abs=0.00051 if fraction < 0.099 else 0.0051)


@given(st.floats(1e-9, 1e15), st.sampled_from(["1", "1/s", "B", "B/s", "bit/s", "s"]))
def test_a_printed_value_keeps_three_digits(value: float, unit: str) -> None:
    number, *rest = units.format_value(value, unit).split()
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "\N{MICRO SIGN}": 1e-6, "n": 1e-9}
    base = unit.removeprefix("1")
    prefix = rest[0].removesuffix(base) if rest else ""
    assert float(number) * scale.get(prefix, 1.0) == pytest.approx(value, rel=0.0051)


def test_every_unit_of_a_metric_can_be_written() -> None:
    assert set(units.UNITS) == set(get_args(Unit))
