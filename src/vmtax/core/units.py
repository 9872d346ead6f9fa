"""Convert between base units, used internally, and scaled units, used by people. Independent of the rest of vmtax."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"

_UP = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_DOWN = (("", 1.0), ("m", 1e-3), ("\N{MICRO SIGN}", 1e-6), ("n", 1e-9))

# Base unit -> (text after the prefix, prefixes with their factors, largest first). Rates have no "milli": "m/s" would
# be metres. Seconds are not scaled up to kiloseconds. CPU time per byte is always given per gigabyte.
UNITS = {
    "1": ("", _UP),
    "1/s": ("/s", _UP),
    "s": ("s", _DOWN),
    "B": ("B", _UP),
    "B/s": ("B/s", _UP),
    "bit/s": ("bit/s", _UP),
    "s/B": ("CPU\N{MIDDLE DOT}s/GB", (("", 1e-9),)),
}

_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
# "64k", "64K" as in fio and QEMU, "64KiB", "64Ki" as in Kubernetes, "1.5G", "1GB", "512B"
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(ib?|b)?|b)?", re.IGNORECASE | re.ASCII)
# Unit -> (seconds, spellings), largest first
_TIMES = {
    "d": (Decimal(86400), "d"),
    "h": (Decimal(3600), "h"),
    "m": (Decimal(60), "m|min"),
    "s": (Decimal(1), "s|sec"),
    "ms": (Decimal("1e-3"), "ms|msec"),
    "us": (Decimal("1e-6"), "us|usec|\N{MICRO SIGN}s|\N{GREEK SMALL LETTER MU}s"),
    "ns": (Decimal("1e-9"), "ns|nsec"),
}
_DURATION = re.compile(
    "".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?)\s*(?:{words})(?![a-z])\s*)?" for unit, (_, words) in _TIMES.items()),
    re.ASCII,
)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
MOST_OF_A_ROW = 100_000  # times its unit, of a value in a row of a table
_TWICE = 1.995  # a ratio that rounds to twice, from which on a cost is written as a factor
_LONGEST = 40  # characters of a quantity; longer text is not accepted
_LONGEST_VALUE = 40  # characters of a wrong value that a message repeats


def format_value(value: float, unit: str) -> str:
    """`value` in a base unit for people, with three significant digits: "12.3 k/s", "1.25 ms", "1.60 Gbit/s".

    Raises ValueError for a unit that is no base unit.
    """
    if unit not in UNITS:
        raise ValueError(f"{unit!r} is no base unit; these are: {', '.join(UNITS)}")
    name, prefixes = UNITS[unit]
    if not math.isfinite(value):
        return f"{value} {name}".rstrip()
    size = float(f"{abs(value):.3g}")  # rounded first, so that 999.9 becomes 1.00 k and not 1000
    if not size:
        return f"0 {name}".rstrip()
    prefix, factor = next(((p, f) for p, f in prefixes if size >= f), prefixes[-1])
    counted = not prefix and unit in ("1", "B") and float(value).is_integer()
    digits = f"{abs(value):.0f}" if counted else _three_digits(abs(value) / factor)
    return f"{MINUS if value < 0 else ''}{digits} {prefix}{name}".rstrip()


def format_row(values: Sequence[float | None], unit: str) -> tuple[str, list[str]]:
    """Values of one row of a table with their common unit: ("GB/s", ["15.9", "0.650", ""]).

    Three significant digits each; "" for None. The prefix suits the smallest value, so that none is below 1, or is
    larger if the largest value would have more than five digits before its point.
    """
    name, prefixes = UNITS[unit]
    sizes = [float(f"{abs(value):.3g}") for value in values if value and math.isfinite(value)]
    most, least = max(sizes, default=0.0), min(sizes, default=0.0)
    fits = (place for place, (_, factor) in enumerate(prefixes) if least >= factor)
    place = next(fits, len(prefixes) - 1)
    while place and most >= MOST_OF_A_ROW * prefixes[place][1]:
        place -= 1
    prefix, factor = prefixes[place]
    texts = [
        "" if value is None else _three_digits(float(f"{abs(value):.3g}") / factor) if value else "0"
        for value in values
    ]
    return f"{prefix}{name}", [
        MINUS * bool(value and value < 0) + text for value, text in zip(values, texts, strict=True)
    ]


def format_room(size: float) -> str:
    """Bytes of memory or disk space for people, in the units of products and plans: "1.5 GiB", "64 MiB"."""
    if size >= 2**40:
        return f"{size / 2**40:.1f} TiB"
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.0f} MiB"


def format_duration(seconds: float) -> str:
    """Seconds for people, in the two largest units: "850 ms", "4.2 s", "45 s", "2 m 05 s", "1 h 30 m", "2 d 04 h"."""
    if seconds < 0:
        return MINUS + format_duration(-seconds)
    if seconds < 0.9995:
        return format_value(seconds, "s")
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} m"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02} h"


def format_span(low: float, high: float) -> str:
    """A range of seconds for people, in one unit if both have the same: "20 to 40 minutes", "45 s to 2 minutes".

    If the two are equal, the exact duration.
    """
    if low == high:
        return format_duration(low)
    parts = [_coarse(seconds) for seconds in (low, high)]
    if parts[0] == parts[1]:
        return format_duration(high)
    (first, unit), (second, last) = parts
    one = unit.removesuffix("s") if first == "1" and len(unit) > 1 else unit
    return f"{first} to {second} {last}" if unit == last else f"{first} {one} to {second} {last}"


def _coarse(seconds: float) -> tuple[str, str]:
    """A rounded number and its unit."""
    if seconds < 90:
        return f"{max(1, round(seconds, -1 if seconds >= 20 else 0)):.0f}", "s"
    if seconds < 90 * 60:
        minutes = seconds / 60
        return f"{round(minutes / 5) * 5 if minutes >= 20 else round(minutes)}", "minutes"
    hours = seconds / 3600
    return (f"{hours:.1f}".removesuffix(".0"), "hours") if hours < 48 else (f"{hours / 24:.0f}", "days")


def format_overhead(fraction: float) -> str:
    """An overhead for people: "1.9 %", "-0.3 %" with a real minus sign, "96 %".

    From ten times the time on, it is shown as the factor, "24x" with a real multiplication sign; a rate that became
    tenfold (-900 % and less, most often because of a cache) is "24x better". Values below 100 % are not rounded up to
    100 %: a rate that falls to 0.3 % is "99.7 %".
    """
    if not math.isfinite(fraction):
        return str(fraction)
    if abs(fraction) >= 9:
        return f"{1 + abs(fraction):.0f}{TIMES}{' better' if fraction < 0 else ''}"
    percent = abs(fraction) * 100
    digits = f"{percent:.{_percent_decimals(percent)}f}"
    if not float(digits):
        return "0.0 %"
    return f"{MINUS if fraction < 0 else ''}{digits} %"


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost for people: time for the same work, against a baseline."""

    estimate: str  # "+3.1 %", "−3 %" for a gain, "24×" from twice the time on; "not measured" for NaN
    low: str = ""  # ends of its interval as bare numbers in the estimate's unit; "" if there is none
    high: str = ""

    @property
    def interval(self) -> str:
        """Its interval: "2.4–3.9", "20–27", "−1.2…0.8"; "" if there is none."""
        dash = "…" if MINUS in self.low + self.high else "–"
        return f"{self.low}{dash}{self.high}" if self.low else ""

    @property
    def interval_in_unit(self) -> str:
        """The interval where the estimate does not stand before it: "2.4–3.9 %", "20–27×"."""
        unit = " %" if self.estimate.endswith("%") else TIMES
        return f"{self.interval}{unit}" if self.low else ""

    def __str__(self) -> str:
        """For use in a sentence: "+3.1 % (2.4–3.9)"."""
        return f"{self.estimate} ({self.interval})" if self.low else self.estimate


def time_ratio(
    better: str, ratio: float, low: float | None = None, high: float | None = None
) -> tuple[float, float | None, float | None]:
    """(estimate, low, high) of the ratio of times for the same work, from the ratio of a metric and its interval.

    better: "lower" for a time, CPU time or bytes, whose ratio it equals; "higher" for a rate, of which it is the
    inverse
    """
    if better == "lower":
        return ratio, low, high
    return 1 / ratio, None if high is None else 1 / high, None if low is None else 1 / low


def format_cost(ratio: float, low: float | None = None, high: float | None = None) -> Cost:
    """The cost for a ratio of times for the same work; 1 means no cost; low <= ratio <= high.

    Below twice the time it is a percentage, from there on a factor; the interval is in the same unit, with decimals
    according to its width. A value other than 0 % (or 1×) is never rounded to that.
    """
    if not math.isfinite(ratio):
        return Cost("not measured")
    percent = ratio < _TWICE
    bounds = () if low is None or high is None else (low, high)
    numbers = [100 * (part - 1) if percent else part for part in (ratio, *bounds)]
    decimals = _cost_decimals(numbers, percent)
    texts = [_cost_digits(number, decimals, 0 if percent else 1) for number in numbers]
    if not percent:
        return Cost(texts[0] + TIMES, *texts[1:])
    sign = "+" if float(texts[0].replace(MINUS, "-")) > 0 else ""
    return Cost(f"{sign}{texts[0]} %", *texts[1:])


def format_percent(fraction: float) -> str:
    """A percentage in the precision in which it was given: "2 %", "0.5 %"."""
    return f"{100 * fraction:.10g} %"


def format_percentile(share: float) -> str:
    """The usual name of the value that a share, 0 to 1, of values does not exceed: "p99.9"."""
    return f"p{100 * share:.10g}"


def count_of(number: int, noun: str) -> str:
    """Such as "1 round", "2,143 rounds"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def at_most(most: int, texts: Sequence[str]) -> list[str]:
    """The texts for people; those beyond the first `most` become a number: "and 5,980 more"."""
    return [*texts[:most], *([f"and {len(texts) - most:,} more"] if len(texts) > most else [])]


def shortened(text: str, most: int) -> str:
    """`text`, or only its beginning and end if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[3 - (most + 1) // 2 :]}"


def show(value: object) -> str:
    """A value as repeated in a message: shortened."""
    text = repr(value) if isinstance(value, str) else _plain(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def parse_bytes(text: str) -> int:
    """Bytes of "4k", "512MiB", "16Ki", "1.5G" (powers of 1024, as in fio and QEMU) or "1GB" (powers of 1000).

    Raises ValueError if it is no size or not a whole number of bytes.
    """
    match = _matched(_BYTES, text)
    if match:
        number, prefix, suffix = match.groups(default="")
        scale = (_DECIMAL if suffix.lower() == "b" else _BINARY)[prefix.lower()] if prefix else 1
        size = Decimal(number) * scale
        if size == int(size):
            return int(size)
    raise ValueError(f"{show(text)} is no size; write a number and a unit, such as 4k, 512MiB, 1GiB (or 1GB for 10^9)")


def parse_duration(text: str) -> float:
    """Seconds of "90s", "20m", "1h30m", "1.5h", "2d", "5ms", "200us", largest unit first. Raises ValueError, also if
    there is no unit.
    """
    match = _matched(_DURATION, text)
    parts = {unit: number for unit, number in match.groupdict().items() if number} if match else {}
    if not parts:
        raise ValueError(
            f"{show(text)} is no duration; write numbers with d, h, m, s, ms, us or ns, such as 90s, 1h30m or 200us"
        )
    return float(sum(Decimal(number) * _TIMES[unit][0] for unit, number in parts.items()))


def same_quantity(one: str, other: str) -> bool:
    """Whether both are the same size, or the same time: "64k" and "64KiB", "0.2ms" and "200us"."""
    for parse in (parse_bytes, parse_duration):
        with contextlib.suppress(ValueError):
            if parse(one) == parse(other):
                return True
    return False


def as_size(size: int) -> str:
    """Bytes as they are written in plans, exactly, in the largest unit that has no fraction: "64KiB", "1536MiB"."""
    unit = next((unit for unit in ("t", "g", "m", "k") if size and size % _BINARY[unit] == 0), "")
    return f"{size // _BINARY[unit]}{unit.upper()}iB" if unit else f"{size}B"


def size_text(written: str) -> str:
    """A size in the spelling of plans, "1GiB" for "1g"; the text itself if it is no size."""
    try:
        return as_size(parse_bytes(written))
    except ValueError:
        return written


def as_duration(seconds: float) -> str:
    """Seconds as they are written in plans, exactly: "1h30m", "20m", "0.5s"."""
    left, text = Decimal(repr(float(seconds))), ""
    for unit in ("d", "h", "m"):
        whole, left = divmod(left, _TIMES[unit][0])
        text += f"{whole:f}{unit}" if whole else ""
    return text + (f"{left.normalize():f}s" if left or not text else "")


def parse_percent(text: str) -> float:
    """Fraction of "2%": 0.02. Raises ValueError without the sign, because 0.02 would be ambiguous."""
    match = _matched(_PERCENT, text)
    if not match:
        raise ValueError(f"{show(text)} is no percentage; write a number and a percent sign, such as 2% or 0.5%")
    return float(Decimal(match[1]) / 100)


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    stripped = text.strip()
    return pattern.fullmatch(stripped) if len(stripped) <= _LONGEST else None


def _three_digits(value: float) -> str:
    """`value` > 0 with three significant digits, without an exponent if that is readable."""
    if value < 0.001:
        return f"{value:.2e}"
    exponent = math.floor(math.log10(float(f"{value:.2e}")))
    return f"{value:.{max(0, 2 - exponent)}f}"


def _cost_decimals(numbers: Sequence[float], percent: bool) -> int:
    """Decimals of an estimate, and of its interval's ends if it has one: some 2 to 20 steps from end to end."""
    size = max(map(abs, numbers))
    usual = 1 if size < 9.95 or (not percent and numbers[0] < 9.95) else 0
    ends = sorted(numbers[1:])
    if len(ends) < 2 or ends[0] == ends[1]:
        decimals = usual
    else:
        width = ends[1] - ends[0]
        by_width = math.ceil(-math.log10(width / (5 if percent and size < 9.95 else 2)))
        three_digits = max(0, 2 - math.floor(math.log10(size)))
        decimals = max(0 if percent else usual, min(by_width, three_digits, 4))
        while decimals < 4 and f"{ends[0]:.{decimals}f}" == f"{ends[1]:.{decimals}f}":
            decimals += 1
    # A cost above -100 % must not be rounded to -100 %.
    while decimals < 4 and any(percent and n > -100 and float(f"{n:.{decimals}f}") == -100 for n in numbers):
        decimals += 1
    return decimals


def _cost_digits(number: float, decimals: int, nothing: float) -> str:
    """`number` with these decimals, up to two if it would otherwise be rounded to 0 or `nothing`."""
    if abs(number) >= 1e6:
        return f"{number:.3g}"
    texts = [f"{number:.{more}f}" for more in range(decimals, max(decimals, 2) + 1)]
    text = next((text for text in texts if float(text) not in (0, nothing)), texts[0])
    return text.replace("-", MINUS if float(text) else "")


def _percent_decimals(percent: float) -> int:
    if percent < 0.095:
        return 2
    if percent < 9.95:
        return 1
    if 99 <= percent < 100:
        return next((decimals for decimals in (1, 2, 3) if float(f"{percent:.{decimals}f}") < 100), 4)
    return 0


def printable(text: str) -> str:
    """`text` without characters that a terminal would interpret: names and tools' output may contain escape
    sequences.
    """
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _plain(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) > 10**_LONGEST_VALUE:
        return "a number of that size"  # str() of more than 4300 digits raises
    return str(value)


_MOST_PARTS = 1000  # of a list of CPUs


def cpu_numbers(text: object) -> list[int]:
    """The CPUs in the kernel's list notation, "0-3,8"; empty if it is not understood."""
    numbers: list[int] = []
    parts = str(text or "").split(",")
    if len(parts) > _MOST_PARTS:
        return []
    for part in parts:
        first, _, last = part.strip().partition("-")
        if not all(word.isascii() and word.isdigit() and len(word) < 5 for word in (first, last or first)):
            return []
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def cpu_list(cpus: Iterable[int]) -> str:
    """These CPUs in the kernel's list notation, without ranges."""
    return ",".join(map(str, sorted(cpus)))
