"""The two sides of `run --interleave-with`: their names and their treatments. Pure.

The side of the plan's own host and QEMU is ""; the other side is named after the option's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtax.core.records import Experiment, Treatment


def is_host(other: str) -> bool:
    """Whether it is a host as in a plan; otherwise it is a QEMU program."""
    return other in ("local", "lab") or other.startswith(("ssh:", "lab:"))


def both(treatments: Sequence[Treatment], other: str | None) -> tuple[Treatment, ...]:
    """The treatments of the plan, then those of the other side; a host measured with two QEMUs is a single host
    layer.
    """
    if other is None:
        return tuple(treatments)
    joint = "on" if is_host(other) else "with"

    def name(own: str) -> str:
        return f"{own} {joint} {other}"

    more = (
        replace(
            treatment,
            name=name(treatment.name),
            repeats=name(treatment.repeats) if treatment.repeats is not None else None,
            side=other,
        )
        for treatment in treatments
        if is_host(other) or treatment.boots
    )
    return (*treatments, *more)


@dataclass(frozen=True, slots=True)
class Sides:
    """Names of the two sides of an experiment."""

    own: str  # "local", or the QEMU of the plan's own side
    other: str
    joint: str  # "on" for a host, "with" for a QEMU

    def where(self, *, own: bool) -> str:
        """One of the sides: "on ssh://b"."""
        return f"{self.joint} {self.own if own else self.other}"

    def short(self, treatment: str) -> str:
        """The name of a treatment without its side, for text that names the side already."""
        return treatment.removesuffix(f" {self.where(own=False)}")

    def place(self, host: str) -> str:
        """Where everything was measured; `host` is the plan's."""
        return f"{self.own} and {self.other}" if self.joint == "on" else f"{host}, with {self.own} and {self.other}"


def sides_of(experiment: Experiment) -> Sides | None:
    """None if nothing is interleaved."""
    other = next((treatment.side for treatment in experiment.treatments if treatment.side), None)
    if other is None:
        return None
    if is_host(other):
        return Sides(experiment.host, other, "on")
    value: object = experiment.facts
    for key in ("host", "qemu", "command"):
        value = value.get(key) if isinstance(value, dict) else None
    command = [str(word) for word in value] if isinstance(value, list) else ["the plan's own QEMU"]
    return Sides(qemu_name(command), other, "with")


def qemu_name(command: Sequence[str]) -> str:
    """The name of the QEMU of the plan's own side."""
    return command[0] if len(command) == 1 else "the image's QEMU"
