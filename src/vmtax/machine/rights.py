"""What we may do on a machine: it is tried there (`tries.py`), and what is refused comes with why and what grants it.

The doctor, what is read before a run, and the run ask the same questions here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from vmtax.core.machines import Reader
from vmtax.machine.answer import object_or_none
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.remedies import Around, Failure, remedy, seen

SECONDS = 60.0  # a command that is tried has 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a machine refuses us."""

    why: str  # what was tried, and the kernel's or the program's own words
    remedy: str  # what grants it, one line for each step; empty: unknown

    def __str__(self) -> str:
        """Both as a part of a sentence: what stands behind a command as its comment is put in brackets."""
        steps = [command + (f" ({hint})" if hint else "") for command, hint in map(_parted, self.remedy.splitlines())]
        return "; ".join((self.why, *steps))


@dataclass(frozen=True, slots=True)
class Rights:
    """What was tried on a machine, and how it went."""

    around: Around  # what decides what we may do there
    failures: Mapping[str, Failure | None]  # name of a try -> how it failed; None: it succeeded

    def may(self, name: str) -> bool:
        """Whether it was tried and succeeded."""
        return name in self.failures and self.failures[name] is None

    def refused(self, name: str) -> Refusal | None:
        """Why not; None if we may, or if it could not be tried."""
        failure = self.failures.get(name)
        return Refusal(seen(name, failure, self.around), remedy(name, failure, self.around)) if failure else None


def ask(reader: Reader, *names: str, command: Sequence[str] = ()) -> Rights:
    """Try these things there: names of `tries.TRIES`, "directory=PATH", "programs" or "programs=PATH" (keys of
    `Rights.failures` have no path); and start `command`, whose key is "command".

    What cannot be tried, such as without Python there, is in none of the answers. Raises MachineLost.
    """
    tried = reader.try_run(PYTHON, *ISOLATED, source(), *names, *(("--", *command) if command else ()), timeout=SECONDS)
    return parse(tried.stdout)


def why_not(reader: Reader, *names: str, command: Sequence[str] = ()) -> str:
    """Why we may not do one of these things there, and what grants it; empty if we may, or if none could be tried."""
    rights = ask(reader, *names, command=command)
    asked = [*(name.partition("=")[0] for name in names), *(("command",) if command else ())]
    return next((str(refused) for name in asked if (refused := rights.refused(name))), "")


@cache
def source() -> str:
    return resources.files("vmtax.machine").joinpath("tries.py").read_text(encoding="utf-8")


def parse(text: str) -> Rights:
    """The rights in what `tries.py` printed; what is missing or damaged was not tried."""
    parts = object_or_none(text) or {}
    tries = parts.get("tries")
    return Rights(
        Around.parse(parts.get("around")),
        {name: _failure(one) for name, one in tries.items() if isinstance(one, dict)}
        if isinstance(tries, dict)
        else {},
    )


def _parted(step: str) -> tuple[str, str]:
    command, _, hint = step.partition("   # ")
    return command, hint


def _failure(answer: Mapping[str, Any]) -> Failure | None:
    return None if answer.get("ok") is True else Failure(*(str(answer.get(key)) for key in ("step", "errno", "words")))
