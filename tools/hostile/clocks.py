"""Clocks that are set, slowed or stopped meanwhile: printed by real shells, in time namespaces too, and made up."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tools.hostile.case import Case
from vmtax.core.stopwatch import UPTIME_STEP, Instant
from vmtax.meter import clock, ledger, pressure
from vmtax.meter.moment import SET_SECONDS, Moment, disagreement, elapsed, parse, wall_clock_set

TITLE = "clocks"
EACH = 25  # of each kind
SECONDS = 0.2  # between the two readings of a real shell
COMMANDS = {"clock": clock.COMMAND, "ledger": ledger.COMMAND, "pressure": pressure.COMMAND}
DATE = """#!/bin/sh
# A wall clock that is set between the two readings.
first={home}/first
if [ -e "$first" ]; then by={by}; else by=0; : > "$first"; fi
{date} -d "@$({date} +%s.%N | awk -v by="$by" '{{ printf "%.9f", $1 + by }}')" "$@"
"""
PIECES = (
    "since ",
    "wall ",
    "1.5",
    "\n",
    "/proc/uptime:",
    "1.00 2.00",
    "btime ",
    "9" * 30,
    "nan",
    "-1",
    "\0",
    "٣.٣٣",
    ".",
)


def cases(source: random.Random, home: Path, share: float) -> Iterator[Case]:
    count = max(1, round(EACH * share))
    for number in range(count):
        name = source.choice(list(COMMANDS))
        yield Case(f"{name} in time namespace {number}", _namespace(name, source.randrange(10, 10**8)))
        by = source.choice((-1, 1)) * source.choice((0.3, 0.5, 1.0, 2.5, 30.0, 3600.0, 1e6))
        # All but `pressure` read the wall clock
        yield Case(f"clock, set by {by:+g} s", _set("clock", by, home / f"set-{number}"))
        yield Case(f"ledger, set by {by:+g} s", _set("ledger", by, home / f"ledger-{number}"))
        text = "".join(source.choices(PIECES, k=source.randrange(40)))
        yield Case(f"garbage {text!r}", _garbage(text))
        seconds, speed, slept = source.uniform(1, 4000), source.uniform(0.5, 1.5), source.choice((0.0, 0.5, 5.0, 500.0))
        yield Case(f"{seconds:.1f} s at speed {speed:.3f}, slept {slept:g} s", _made_up(seconds, speed, slept))


def _read(name: str, environment: Mapping[str, str], *prefix: str) -> Moment | None:
    asked = Instant.now()
    done = subprocess.run([*prefix, *COMMANDS[name]], capture_output=True, text=True, env=dict(environment))
    found = parse(done.stdout)
    return replace(found, asked=asked, answered=Instant.now()) if found else None


def _pair(name: str, environment: Mapping[str, str], *prefix: str) -> tuple[Moment, Moment] | None:
    before = _read(name, environment, *prefix)
    time.sleep(SECONDS)
    after = _read(name, environment, *prefix)
    return (before, after) if before and after else None


def _namespace(name: str, offset: int) -> Callable[[], Iterable[str]]:
    """The offsets of a namespace are no steps, and do not change how much time passes."""

    def complaints() -> Iterable[str]:
        pair = _pair(name, os.environ, "unshare", "--time", "--boottime", str(offset), "--fork", "--")
        if pair is None:
            yield "not understood"
        elif wrong := disagreement("host", *pair) or wall_clock_set("host", *pair):
            yield wrong

    return complaints


def _set(name: str, by: float, home: Path) -> Callable[[], Iterable[str]]:
    """A wall clock that is set is seen, and no interval moves with it by more than a hundredth of a second."""

    def complaints() -> Iterable[str]:
        home.mkdir()
        date = home / "date"
        date.write_text(DATE.format(home=home, by=by, date=shutil.which("date")))
        date.chmod(0o755)
        pair = _pair(name, {**os.environ, "PATH": f"{home}:{os.environ['PATH']}"})
        if pair is None:
            yield "not understood"
            return
        counted = pair[1].uptime - pair[0].uptime
        if abs(elapsed(*pair) - counted) > UPTIME_STEP * 1.001:
            yield f"{elapsed(*pair)} s, where uptime counted {counted}"
        if disagreement("host", *pair):
            yield disagreement("host", *pair)
        if abs(by) > pair[0].apart + pair[1].apart + SET_SECONDS and not wall_clock_set("host", *pair):
            yield "was not noticed"

    return complaints


def _garbage(text: str) -> Callable[[], Iterable[str]]:
    def complaints() -> Iterable[str]:
        try:
            found = parse(text)
            if found is not None:
                disagreement("host", found, found)
        except Exception as error:
            yield repr(error)

    return complaints


def _made_up(seconds: float, speed: float, slept: float) -> Callable[[], Iterable[str]]:
    """A clock that is more than 1 % off is doubted, and so is any time in which the machine that runs vmtax slept."""

    def complaints() -> Iterable[str]:
        before = Moment(5000.0, asked=Instant(100.0, 200.0), answered=Instant(100.0, 200.0))
        end = Instant(100.0 + seconds, 200.0 + seconds + slept)
        after = Moment(5000.0 + seconds * speed + slept, asked=end, answered=end)
        off = abs(speed - 1) * seconds > UPTIME_STEP + 0.01 * (seconds + slept)
        if bool(disagreement("host", before, after)) != (off or slept > 0):
            yield f"said {disagreement('host', before, after)!r}"

    return complaints
