"""The first touch of memory, and its reuse: what a page costs that the machine never used, and one that it used before.

A guest's kernel gives a program a page at once, but the host must find memory for it when it is touched for the first
time, and so must each host below. Later, the guest reuses it by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Annotated, ClassVar

from pydantic import Field

from vmtax.core.layers import LAYERS, OWNERS
from vmtax.core.quantities import Quantity
from vmtax.core.records import Measurement, Metric
from vmtax.core.units import parse_bytes
from vmtax.workload.base import Command, Measure, Parameters
from vmtax.workload.migration import PYTHON
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import Site

MIB = 2**20
PAGE = 4096
BEFORE = 128 * MIB  # touched before: more than a guest of ours has used and freed when it is up
PAGE_SECONDS = 2e-6  # for the estimate; a host takes a quarter of that
FIRST, AGAIN = (Metric(f"touch.{name}_seconds", "s", "lower") for name in ("first", "again"))
LINE = r"(vmtax touch: (?P<pages>\d{1,9}) pages, first (?P<first>\d{1,6}\.\d{9}) s, again (?P<again>\d{1,6}\.\d{9}) s)$"


class TouchParameters(Parameters):
    size: Annotated[str, Quantity(parse_bytes, "16MiB", "64GiB", "256MiB", as_text=True)] = Field(
        "256MiB", description="memory that is touched; a guest must have 256 MiB more"
    )


class Touch(Command[TouchParameters]):
    """Once in each boot, before other work has used the memory."""

    name = "touch"
    describe = "memory: the first touch of a page, and that of a page that was used before (a program of vmtax's)"
    tool = "python3"
    title = "Memory touch"
    layers = frozenset(LAYERS) - {*OWNERS}  # whose system may have used any of its memory before
    comes_first = True
    headline = FIRST.name
    measures: ClassVar = {
        "first_seconds": Measure(
            "mean time to touch a page of 4 KiB that a guest has not used since it was booted, on one CPU; on a host"
            " and in a container, one that the program has not used",
            "first touch",
            "first touch of a page",
        ),
        "again_seconds": Measure(
            "mean time to touch a page of 4 KiB that the machine has used and freed, on one CPU",
            "reuse",
            "reuse of a page",
        ),
    }
    parameters_type = TouchParameters

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return FIRST, AGAIN

    def once(self, case: str) -> bool:
        return True

    @property
    def array_bytes(self) -> int:
        """Memory that it fills in each machine."""
        return BEFORE + parse_bytes(self.parameters.size)

    def command(self, site: Site, case: str) -> Sequence[str]:
        script = resources.files("vmtax.workload").joinpath("touching.py").read_text(encoding="utf-8")
        return (PYTHON, "-I", "-S", "-c", script, str(parse_bytes(self.parameters.size)), str(BEFORE))

    def seconds(self, case: str) -> float:
        return (self.array_bytes + parse_bytes(self.parameters.size)) / PAGE * PAGE_SECONDS + 0.5

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        found = only(LINE, output)
        pages = parse_bytes(self.parameters.size) // PAGE
        if found is None or int(found["pages"]) != pages:
            raise BadOutput(f"expected a line 'vmtax touch: {pages} pages, first … s, again … s'")
        return tuple(
            Measurement(metric, float(found[name]) / pages) for metric, name in ((FIRST, "first"), (AGAIN, "again"))
        )
