"""Each branch of a rule, on the smallest table that reaches it: what it says, and what it lets pass."""

from __future__ import annotations

import pytest

from vmtax.claims.checked import checked
from vmtax.claims.rules.noise import RunSpread, welch_p
from vmtax.claims.schema import parse

S = "source: a test\nyear: 2026\nunit: s\nbetter: lower\n"
RATE = "source: a test\nyear: 2026\nunit: {}\nbetter: higher\n"
AB = "rows: {{a: {{value: {}}}, b: {{value: {}}}}}\n"
FIO = "tool: {{name: fio, options: {{{}}}}}\nrows: {{a: {{value: 1}}}}\n"
LOADED = (
    "rows: {{a: {{value: 1, load: {{{}}}}}, b: {{value: 2, load: {{{}}}}}}}\n"
    "derived: [{{of: a, base: b, word: times}}]\n"
)


def said(text: str) -> dict[str, str]:
    """Rule -> verdict and text of its first finding."""
    found: dict[str, str] = {}
    for one in checked(parse(text)).findings:
        found.setdefault(one.rule, f"{one.verdict}: {one.text}")
    return found


def table(*parts: str) -> str:
    return S + "".join(parts)


def derived(word: str, printed: str, more: str = "") -> str:
    return f"derived: [{{of: b, base: a, word: {word}, printed: {printed}}}{more}]\n"


CASES = {
    # R2: neither mean nor median; a median; a mean that is cut off
    "another mean": (table("rows: {a: {runs: [1.0, 2.0, 6.0], printed: 3.5}}\n"), {"R2": "wrong: printed 3.5, but"}),
    "run 1 alone": (table("rows: {a: {runs: [1.0, 2.0, 6.0], printed: 1.0}}\n"), {"R2": "1.0 is run 1 alone"}),
    "a mean": (table("rows: {a: {runs: [1.0, 2.0, 6.0], printed: 3.0}}\n"), {}),
    "a median": (table("rows: {a: {runs: [1.0, 2.0, 6.0], printed: 2.0}}\n"), {}),
    "a mean cut off": (table("rows: {a: {runs: [1.00, 2.00, 2.99], printed: 1.9}}\n"), {}),
    # R3: rounding is allowed for
    "shares": (table("whole: 100\nrows: {a: {value: 33.3}, b: {value: 33.3}, c: {value: 33.3}}\n"), {}),
    "too few shares": (table("whole: 100\n", AB.format("33.3", "33.3")), {"R3": "wrong: the 2 rows add to 66.6 s"}),
    "too many shares": (table("whole: 100\n", AB.format("50.2", "50.3")), {"R3": "wrong: the 2 rows add to 100.5 s"}),
    # R4: a fixed queue; without one, unlike load
    "a queue": (table(LOADED.format(*["rate: 32e3, latency: 1.0e-3, queue: 32"] * 2)), {}),
    "a missed queue": (
        table(LOADED.format("rate: 32e3, latency: 2.0e-3, queue: 32", "rate: 32e3, latency: 1.0e-3, queue: 32")),
        {"R4": "wrong: 32e3/s times 2.0e-3 s is 64 operations under way, but 32 were"},
    ),
    "a queue nearly": (table(LOADED.format(*["rate: 32.0e3, latency: 0.950e-3, queue: 32"] * 2)), {}),
    "unlike load": (
        table(LOADED.format("rate: 29e3, latency: 9e-3", "rate: 25.5e3, latency: 8e-3")),
        {"R4": "doubtful: 261 against 204 operations under way"},
    ),
    "like load": (table(LOADED.format("rate: 29e3, latency: 9e-3", "rate: 32e3, latency: 8e-3")), {}),
    # R5: a ratio without a sure digit, an open sign, cut off beside rounded
    "few digits": (
        table(AB.format("2", "5"), derived("times", "2.5")),
        {"R5": "doubtful: the printed digits of the two"},
    ),
    "enough digits": (table(AB.format("20", "50"), derived("times", "2.5")), {}),
    "an open sign": (table(AB.format("200", "200.4"), derived("more", "0.2")), {"R5": "allow −0.07"}),
    "a sure sign": (table(AB.format("200.0", "200.4"), derived("more", "0.2")), {}),
    "mixed": (
        table(
            "rows: {a: {value: 1.000}, b: {value: 1.857}, c: {value: 1.997}}\n",
            derived("times", "1.85", ", {of: c, base: a, word: times, printed: 2.00}"),
        ),
        {"R5": "wrong: 1.85 is 1.857 cut off, but 2.00 is 1.997 rounded"},
    ),
    "all cut off": (
        table(
            "rows: {a: {value: 1.000}, b: {value: 1.857}, c: {value: 1.997}}\n",
            derived("times", "1.85", ", {of: c, base: a, word: times, printed: 1.99}"),
        ),
        {},
    ),
    # R6: on purpose, both at once, only one states it, no comparison
    "unlike": (
        table("setup: {a: {cpus: '2'}, b: {cpus: '4'}}\n", AB.format("1.00", "2.00"), derived("times", "2")),
        {"R6": "doubtful: unlike: cpus 4 and 2"},
    ),
    "on purpose": (
        table(
            "varied: [cpus]\nsetup: {a: {cpus: '2'}, b: {cpus: '4'}}\n",
            AB.format("1.00", "2.00"),
            derived("times", "2"),
        ),
        {},
    ),
    "two at once": (
        table(
            "varied: [cpus, pages]\nsetup: {a: {cpus: '2', pages: 4k}, b: {cpus: '4', pages: 2M}}\n",
            AB.format("1.00", "2.00"),
            derived("times", "2"),
        ),
        {"R6": "doubtful: unlike: cpus 4 and 2, pages 2M and 4k"},
    ),
    "one-sided": (table("setup: {a: {cpus: '2'}, b: {os: x}}\n", AB.format("1.00", "2.00"), derived("times", "2")), {}),
    "no figures": (
        "source: a\nyear: null\ntables: []\nsetup: {a: {ram: 1}, b: {ram: 2}}\n",
        {"R6": "doubtful: unlike: ram 2 and 1"},
    ),
    # R7: the version, the option that makes it count work, another kind of figure
    "sysbench 1.0": (
        table("shows: run time\ntool: {name: sysbench, test: cpu, version: 1.0.20}\nrows: {a: {value: 10.2}}\n"),
        {"R7": "wrong: sysbench cpu ends after 10 s"},
    ),
    "sysbench 0.4": (
        table("shows: run time\ntool: {name: sysbench, test: cpu, version: 0.4.12}\nrows: {a: {value: 17.5}}\n"),
        {},
    ),
    "sysbench, version unknown": (
        table("shows: run time\ntool: {name: Sysbench, test: cpu}\nrows: {a: {value: 10.2}}\n"),
        {"R7": "wrong: sysbench cpu ends"},
    ),
    "sysbench, events": (
        table(
            "shows: run time\ntool: {name: sysbench, test: cpu, version: '1.0', options: {time: '0', events: '9'}}\n",
            "rows: {a: {value: 10.2}}\n",
        ),
        {},
    ),
    "its latency": (table("shows: latency\ntool: {name: sysbench, test: cpu}\nrows: {a: {value: 10.2}}\n"), {}),
    "fio, timed": (
        table("shows: run time\n", FIO.format("time_based: '1', runtime: '60'")),
        {"R7": "wrong: fio ends after the time of runtime"},
    ),
    "fio, a size": (table("shows: run time\n", FIO.format("size: 1g")), {}),
    # R8: units, several links, operations of a size
    "faster than SATA": (
        RATE.format("MB/s") + "through: {link: sata-6g}\nrows: {a: {value: 1000}}\n",
        {"R8": "doubtful: 1.00 GB/s is more than SATA 6 Gbit/s can carry, 600 MB/s"},
    ),
    "as fast as SATA": (RATE.format("MB/s") + "through: {link: sata-6g}\nrows: {a: {value: 600}}\n", {}),
    "two links": (RATE.format("MB/s") + "through: {link: sata-6g, count: 2}\nrows: {a: {value: 1000}}\n", {}),
    "MiB": (RATE.format("MiB/s") + "through: {link: sata-6g}\nrows: {a: {value: 580}}\n", {"R8": "608 MB/s"}),
    "bits": (RATE.format("Gbit/s") + "through: {link: ethernet-10g}\nrows: {a: {value: 9.41}}\n", {}),
    "too many bits": (
        RATE.format("Gbps") + "through: {link: ethernet-10g}\nrows: {a: {value: 14}}\n",
        {"R8": "1.75 GB/s"},
    ),
    "operations": (
        RATE.format("IOPS") + "block: 4KiB\nthrough: {link: sata-6g}\nrows: {a: {value: 200000}}\n",
        {"R8": "doubtful: 819 MB/s is more than"},
    ),
    "operations of no size": (RATE.format("IOPS") + "through: {link: sata-6g}\nrows: {a: {value: 200000}}\n", {}),
    # R9: spread, samples, faster than below
    "a wide spread": (
        table("rows: {a: {value: 0.99, sd: 1.52}}\n"),
        {"R9": "doubtful: the standard deviation, 1.52, is"},
    ),
    "a narrow spread": (table("rows: {a: {value: 0.99, sd: 0.52}}\n"), {}),
    "alike": (
        table("rows: {a: {value: 10.0, sd: 2, n: 5}, b: {value: 11.0, sd: 2, n: 5}}\n", derived("times", "1.1")),
        {"R9": "doubtful: 5 and 5 runs do not tell the two apart: Welch's test, p = 0.45"},
    ),
    "different": (
        table("rows: {a: {value: 10.0, sd: 0.2, n: 5}, b: {value: 11.0, sd: 0.2, n: 5}}\n", derived("times", "1.1")),
        {},
    ),
    "a guest that is faster": (
        table("rows: {a: {value: 10.0, layer: host}, b: {value: 9.8, layer: vm}}\n", derived("less", "2.0")),
        {"R9": "doubtful: b is 2.041 % faster than a, which it runs on"},
    ),
    "a host that is faster": (
        table("rows: {a: {value: 10.0, layer: vm}, b: {value: 9.8, layer: host}}\n", derived("less", "2.0")),
        {},
    ),
    # R10
    "one label": (
        table("rows: {a: {value: 1, label: Read}, b: {value: 2, label: ' read '}}\n"),
        {"R10": "wrong: 2 rows"},
    ),
    "another count": (
        table("stated_rows: 3\n", AB.format("1", "2")),
        {"R10": "wrong: the text says 3 rows, the table has 2"},
    ),
    "another figure": (
        table("mentions: [{row: a, value: 12}]\n", AB.format("1", "2")),
        {"R10": "wrong: the text says 12, the table 1"},
    ),
    "a rounded figure": (table("mentions: [{row: a, value: 12}]\n", AB.format("12.3", "2")), {}),
    "another set-up": (
        table("setup: {a: {x: y}, b: {x: y}}\nmentions: [{row: a, setup: b}]\n", AB.format("1", "2")),
        {"R10": "wrong: the text calls it b, the table a"},
    ),
    # R11: of one row, of like rows, and of none
    "a headline of one": (
        table(AB.format("10.0", "12.0"), "headlines: [{printed: 1.2, word: times, over: [{of: b, base: a}]}]\n"),
        {},
    ),
    "a wrong headline": (
        table(AB.format("10.0", "12.0"), "headlines: [{printed: 3, word: times, over: [{of: b, base: a}]}]\n"),
        {"R11": "wrong: the headline 3× is near nothing of its 1 row, 1.2×"},
    ),
    "the largest": (
        table(
            "rows: {a: {value: 10.0}, b: {value: 12.0}, c: {value: 19.0}}\n",
            "headlines: [{printed: 1.9, word: times, over: [{of: b, base: a}, {of: c, base: a}]}]\n",
        ),
        {"R11": "doubtful: the headline 1.9× is the largest of its 2 rows, 1.2× to 1.9×"},
    ),
    # R12: options, and the page cache
    "depth beside sync": (
        table(FIO.format("iodepth: '4', ioengine: sync")),
        {"R12": "doubtful: iodepth=4 has no effect"},
    ),
    "depth 1 beside sync": (table(FIO.format("iodepth: '1', ioengine: sync")), {}),
    "depth beside libaio": (table(FIO.format("iodepth: '4', ioengine: libaio, direct: '1'")), {}),
    "buffered libaio": (
        table(FIO.format("iodepth: '4', ioengine: libaio")),
        {"R12": "beside ioengine=libaio without direct (fio manual"},
    ),
    "data in memory": (
        table("data: 1GiB\nsetup: {a: {memory: 4 GiB}}\n", FIO.format("ioengine: psync")),
        {"R12": "doubtful: 1GiB fit in the memory of a, and go through its cache"},
    ),
    "data beyond memory": (table("data: 8GiB\nsetup: {a: {memory: 4 GiB}}\n", FIO.format("ioengine: psync")), {}),
    "direct": (table("data: 1GiB\nsetup: {a: {memory: 4 GiB}}\n", FIO.format("direct: '1'")), {}),
    # R13
    "once": (table("n: 1\nrows: {a: {value: 1}}\n"), {"R13": "doubtful: was measured once"}),
    "twice": (table("n: 2\nrows: {a: {value: 1}}\n"), {}),
    "no unit": (
        table("lacks: [unit]\nrows: {a: {value: 1}}\n"),
        {"R13": "doubtful: does not say the unit of its figures"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_of_its_fault_and_of_nothing_else(name: str) -> None:
    text, expected = CASES[name]
    found = said(text)
    assert set(found) == set(expected)
    for rule, part in expected.items():
        assert part in found[rule]


def test_what_a_file_has_no_data_for_is_said() -> None:
    assert checked(parse(table("rows: {a: {value: 1}}\n"))).silent == tuple(
        f"R{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13)
    )


@pytest.mark.parametrize(
    ("one", "two", "p"),
    [
        (RunSpread(319.0228, 12.719, 10), RunSpread(313.5489, 19.0774, 10), 0.4616),  # scipy.stats.ttest_ind
        (RunSpread(10, 1, 5), RunSpread(10, 1, 5), 1.0),
        (RunSpread(10, 0, 5), RunSpread(11, 0, 5), 0.0),
        (RunSpread(10, 0, 5), RunSpread(10, 0, 5), 1.0),
    ],
)
def test_welch(one: RunSpread, two: RunSpread, p: float) -> None:
    assert welch_p(one, two) == pytest.approx(p, abs=1e-3)
