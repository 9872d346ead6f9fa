"""Made-up claims: right tables from a seed, and for each rule a fault that is planted in one. None was measured."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import yaml

Data = dict[str, Any]
RULES = tuple(f"R{number}" for number in range(1, 14))
LAYERS = ("host", "vm", "nested")
PAGES = {"host": "4 KiB", "vm": "2 MiB", "nested": "2 MiB"}
ASYNCHRONOUS = {"ioengine": "libaio", "direct": "1", "rw": "randread"}


def right(source: random.Random) -> Data:
    """A claim in which every rule has something to look at, and nothing is wrong."""
    is_time = source.random() < 0.5
    cost = [1.0, source.uniform(1.06, 1.4), source.uniform(1.45, 2.2)]  # more than the noise of the runs
    start = source.uniform(200, 900)
    levels = [start * each if is_time else start / each for each in cost]
    rows = {}
    for layer, level in zip(LAYERS, levels, strict=True):
        runs = [round(level * source.uniform(0.998, 1.002), 3) for _ in range(5)]
        rows[layer] = {"runs": runs, "printed": f"{sum(runs) / 5:.2f}", "layer": layer, "setup": layer}
    means = {layer: sum(rows[layer]["runs"]) / 5 for layer in LAYERS}
    speed = {layer: 1 / means[layer] if is_time else means[layer] for layer in LAYERS}
    loss, share = 100 * (1 - speed["vm"] / speed["host"]), 100 * speed["nested"] / speed["vm"]
    times = means["nested"] / means["host"]
    memory = source.choice(("8 GB", "16 GB", "64 GB"))
    parts = [round(source.uniform(5, 30), 1) for _ in range(3)]
    depth, rate = source.choice((8, 32, 128)), source.uniform(5e3, 5e5)
    warm, cold = (round(source.uniform(*ends), 1) for ends in ((5, 9), (10, 30)))
    return {
        "source": "a generator",
        "year": 2026,
        "n": 5,
        "setup": {layer: {"memory": memory, "kernel": "6.12", "pages": PAGES[layer]} for layer in LAYERS},
        "varied": ["pages"],
        "tables": [
            {
                "title": "layers",
                "unit": "s" if is_time else "1/s",
                "better": "lower" if is_time else "higher",
                "shows": "run time" if is_time else "rate",
                "tool": {"name": "sysbench", "test": "cpu", "version": "0.4.12" if is_time else "1.0"},
                "rows": rows,
                "derived": [
                    {
                        "of": "vm",
                        "base": "host",
                        "word": "loss",
                        "printed": f"{loss:.2f}",
                    },
                    {
                        "of": "nested",
                        "base": "vm",
                        "word": "share",
                        "printed": f"{share:.1f}",
                    },
                    {
                        "of": "nested",
                        "base": "host",
                        "word": "times",
                        "printed": f"{times:.2f}",
                    },
                ],
                "headlines": [
                    {
                        "printed": f"{loss:.1f}",
                        "word": "loss",
                        "over": [{"of": "vm", "base": "host"}],
                    }
                ],
                "mentions": [{"row": "vm", "setup": "vm", "value": rows["vm"]["printed"]}],
                "stated_rows": 3,
            },
            {
                "title": "where the time goes",
                "unit": "%",
                "better": "lower",
                "whole": 100,
                "rows": {
                    **{f"part {number}": {"value": f"{part:.1f}"} for number, part in enumerate(parts)},
                    "idle": {"value": f"{100 - sum(parts):.1f}"},
                },
            },
            {
                "title": "disk",
                "unit": "1/s",
                "better": "higher",
                "shows": "rate",
                "block": "4KiB",
                "through": {"link": "pcie4-x4"},
                "data": "512GiB",
                "tool": {
                    "name": "fio",
                    "options": {"iodepth": str(depth), **ASYNCHRONOUS},
                },
                "rows": {
                    "disk, host": {
                        "value": f"{rate:.0f}",
                        "layer": "host",
                        "load": {"rate": f"{rate:.0f}", "latency": f"{depth / rate:.3e}", "queue": depth},
                    }
                },
            },
            {
                "title": "boots",
                "unit": "s",
                "better": "lower",
                "rows": {"cold": {"value": f"{cold:.1f}"}, "warm": {"value": f"{warm:.1f}"}},
                "derived": [
                    {"of": "cold", "base": "warm", "word": "times", "printed": f"{cold / warm:.2f}"},
                    {"of": "warm", "base": "cold", "word": "times", "printed": f"{warm / cold:.2f}"},
                ],
            },
        ],
    }


def _other_base(claim: Data, source: random.Random) -> None:
    table = claim["tables"][0]
    host, vm = (sum(table["rows"][layer]["runs"]) / 5 for layer in ("host", "vm"))
    slower, faster = max(host, vm), min(host, vm)
    table["derived"][0]["printed"] = f"{100 * (slower / faster - 1):.2f}"


def _one_run_as_mean(claim: Data, source: random.Random) -> None:
    row = claim["tables"][0]["rows"][source.choice(("host", "nested"))]
    apart = round(row["runs"][0] * 0.01, 3)  # the mean stays, and is further away than the printed digits
    row["runs"][:2] = [round(row["runs"][0] + apart, 3), round(row["runs"][1] - apart, 3)]
    row["printed"] = f"{row['runs'][0]:.2f}"


def _shares_too_many(claim: Data, source: random.Random) -> None:
    claim["tables"][1]["rows"]["guest"] = {"value": f"{source.uniform(1, 20):.1f}"}


def _queue_missed(claim: Data, source: random.Random) -> None:
    claim["tables"][2]["rows"]["disk, host"]["load"]["queue"] *= source.choice((2, 4, 16))


def _digits_missing(claim: Data, source: random.Random) -> None:
    small = source.choice((2, 3, 4))
    claim["tables"][3]["rows"] = {"cold": {"value": str(small * 3)}, "warm": {"value": str(small)}}
    claim["tables"][3]["derived"] = [{"of": "cold", "base": "warm", "word": "times", "printed": "3.0"}]


def _unlike(claim: Data, source: random.Random) -> None:
    claim["setup"]["vm"][source.choice(("memory", "kernel"))] = "another"


def _fixed_duration(claim: Data, source: random.Random) -> None:
    table = claim["tables"][0]
    table |= {
        "shows": "run time",
        "tool": {"name": "sysbench", "test": source.choice(("cpu", "threads")), "version": "1.0.20"},
    }


def _through_a_cache(claim: Data, source: random.Random) -> None:
    claim["tables"][2]["rows"]["cached"] = {"value": f"{source.uniform(2e6, 9e6):.0f}"}


def _inside_the_noise(claim: Data, source: random.Random) -> None:
    rows = claim["tables"][0]["rows"]
    rows["again"] = {**rows["vm"], "runs": [*rows["vm"]["runs"][1:], rows["vm"]["runs"][0]]}
    claim["tables"][0]["stated_rows"] = 4
    claim["tables"][0]["derived"].append({"of": "again", "base": "vm", "word": "loss"})


def _duplicate(claim: Data, source: random.Random) -> None:
    rows = claim["tables"][source.choice((0, 1))]["rows"]
    first, second = list(rows)[:2]
    rows[second] = {**rows[second], "label": first.upper()}


def _largest_as_headline(claim: Data, source: random.Random) -> None:
    over = [{"of": "vm", "base": "host"}, {"of": "nested", "base": "host"}]
    headline = claim["tables"][0]["headlines"][0]
    claim["tables"][0]["headlines"][0] = {**headline, "over": over}


def _idle_option(claim: Data, source: random.Random) -> None:
    idle = source.choice(({"ioengine": "sync"}, {"ioengine": "psync"}, {"rwmixread": "70"}))
    claim["tables"][2]["tool"]["options"] |= idle


def _no_evidence(claim: Data, source: random.Random) -> None:
    claim |= source.choice(({"n": 1}, {"lacks": ["n"]}, {"lacks": ["method", "source"]}))


PLANT: dict[str, Callable[[Data, random.Random], None]] = dict(
    zip(
        RULES,
        (
            *(
                _other_base,
                _one_run_as_mean,
                _shares_too_many,
                _queue_missed,
                _digits_missing,
                _unlike,
                _fixed_duration,
            ),
            *(_through_a_cache, _inside_the_noise, _duplicate, _largest_as_headline, _idle_option, _no_evidence),
        ),
        strict=True,
    )
)


def text(claim: Data) -> str:
    """A claim as its file."""
    return yaml.safe_dump(claim, sort_keys=False)


def planted_set(seed: int, count: int = 30) -> tuple[list[str], list[tuple[str, str]]]:
    """(right claims; (rule, claim with its fault)): `count` of each, every rule at least twice."""
    source = random.Random(seed)
    wrong = []
    for number in range(count):
        rule, claim = RULES[number % len(RULES)], right(source)
        PLANT[rule](claim, source)
        wrong.append((rule, text(claim)))
    return [text(right(source)) for _ in range(count)], wrong
