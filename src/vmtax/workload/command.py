"""A program of the user's own: a command line that runs on every layer, and its time or a figure that it prints."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from vmtax.core.records import Better, Measurement, Metric, Unit
from vmtax.workload.base import Command, Counted, Measure, Parameters
from vmtax.workload.output import BadOutput, json_at, json_of, number
from vmtax.workload.site import Site

PYTHON = "/usr/bin/python3"  # of the image
NOT_FOUND = 127  # exit code of a shell for a program that is not there
LONGEST_LINE = 8192  # characters of a command line
REPORT = re.compile(r"^vmtax command: (\{.*\})$", re.MULTILINE)
NUMBER = re.compile(r"[-+]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][-+]?\d{1,3})?", re.ASCII)
PATH = re.compile(r"(?:\.[A-Za-z_][\w-]*|\[\d{1,6}\])+", re.ASCII)
_WORD = re.compile(r"[^A-Za-z0-9+_-]+")
# What a program prints -> the base unit, and how many of those it is
UNITS: Mapping[str, tuple[Unit, float]] = MappingProxyType(
    {
        "s": ("s", 1.0),
        "ms": ("s", 1e-3),
        "us": ("s", 1e-6),
        "ns": ("s", 1e-9),
        "1/s": ("1/s", 1.0),
        "B/s": ("B/s", 1.0),
        "kB/s": ("B/s", 1e3),
        "MB/s": ("B/s", 1e6),
        "GB/s": ("B/s", 1e9),
        "KiB/s": ("B/s", 2.0**10),
        "MiB/s": ("B/s", 2.0**20),
        "GiB/s": ("B/s", 2.0**30),
        "bit/s": ("bit/s", 1.0),
        "Mbit/s": ("bit/s", 1e6),
        "Gbit/s": ("bit/s", 1e9),
        "B": ("B", 1.0),
        "MB": ("B", 1e6),
        "MiB": ("B", 2.0**20),
        "1": ("1", 1.0),
    }
)
LOWER: frozenset[Unit] = frozenset({"s", "B"})  # units of which less is better, unless the plan says otherwise


def _metric(text: str) -> str:
    """A validator for a JSON path, or a regular expression with one group."""
    if not text or PATH.fullmatch(text):
        return text
    try:
        groups = re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as problem:
        raise ValueError(f"is neither a JSON path such as .jobs[0].iops nor a regular expression: {problem}") from None
    if groups != 1:
        raise ValueError(
            rf"must be a JSON path such as .jobs[0].iops, or have one group for the number, as in ops/s=(\d+);"
            f" it has {groups}"
        )
    return text


def _unit(text: str) -> str:
    if text and text not in UNITS:
        raise ValueError(f"must be one of {', '.join(UNITS)}")
    return text


Line = Annotated[str, Field(max_length=LONGEST_LINE, pattern=r"^[^\x00]*$")]


class CommandParameters(Parameters):
    run: Line = Field("", description="the command line, for `sh -c`, in the userland of every layer")
    prepare: Line = Field("", description="a command line before it, which is not timed")
    cleanup: Line = Field("", description="a command line after it, which is not timed")
    metric: Annotated[str, AfterValidator(_metric)] = Field(
        "",
        max_length=500,
        description=r"the figure in its standard output: a regular expression with one group, as `ops/s=(\d+)`, or a"
        " JSON path, as `.jobs[0].iops`; by default its time",
    )
    unit: Annotated[str, AfterValidator(_unit)] = Field(
        "", description=f"unit of `metric`: {', '.join(f'`{unit}`' for unit in UNITS)}; by default `1`"
    )
    better: Literal["", "lower", "higher"] = Field(
        "", description="which figures are better, `lower` or `higher`; by default lower of times and sizes"
    )
    exit_codes: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(
        (0,), min_length=1, description="exit codes with which it succeeds"
    )
    timeout: int = Field(600, ge=1, le=86400, description="seconds after which it has failed, and is killed")
    same_output: bool = Field(False, description="its standard output must be the same on every layer")
    seconds: float = Field(10.0, gt=0, le=86400, description="about how long it takes on the host, for estimates")


class OwnCommand(Command[CommandParameters]):
    """Times the command line inside the machine, from the start of its shell to the end of the shell."""

    name = "command"
    describe = "a program of your own: a command line in the image's userland, its time or a figure that it prints"
    tool = "sh"
    title = "Own program"
    repeats_at_once = True
    emulated_start_seconds = 6.5  # Python starts
    headline = "command.program.seconds"
    measures: ClassVar = {
        "seconds": Measure("time from the start of the command line to its end", "time"),
        "figure": Measure("the figure that the program printed", "figure"),
    }
    parameters_type = CommandParameters

    @property
    def program(self) -> str:
        """The first word of the command line, without its directory: part of the metric's name."""
        words = self.parameters.run.split()
        return _WORD.sub("-", words[0].rpartition("/")[2] if words else "").strip("-")[:40] or "program"

    @property
    def metric(self) -> Metric:
        given = self.parameters
        unit = UNITS[given.unit or "1"][0] if given.metric else "s"
        better: Better = given.better or ("lower" if unit in LOWER else "higher")
        return Metric(f"command.{self.program}.{'figure' if given.metric else 'seconds'}", unit, better)

    def cases(self) -> Sequence[str]:
        return (self.program,)

    def metrics(self) -> Sequence[Metric]:
        return (self.metric,)

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        return f"{metric.case} {cls.measure(metric).label}"

    @classmethod
    def spoken(cls, metric: Metric) -> str:
        return cls.phrase(metric)

    def why_not(self, vcpus: int) -> str | None:
        given = self.parameters
        if not given.run.strip():
            return "needs run, a command line, such as {run: 'gzip -c /usr/bin/git'}"
        if given.unit and not given.metric:
            return "unit is that of metric: name the metric, or leave out the unit"
        if given.metric and UNITS[given.unit or "1"][0] == "1" and not given.better:
            return "metric needs unit, or better: lower or higher"
        return None

    def seconds(self, case: str) -> float:
        return self.parameters.seconds

    def limit(self, case: str, slowdown: float) -> float:
        parts = (self.parameters.prepare, self.parameters.run, self.parameters.cleanup)
        return float(self.parameters.timeout * len(list(filter(None, parts))))

    def command(self, site: Site, case: str) -> Sequence[str]:
        script = resources.files("vmtax.workload").joinpath("inside.py").read_text(encoding="utf-8")
        asked = self.parameters.model_dump(include={"prepare", "run", "cleanup", "timeout"})
        return (PYTHON, "-I", "-c", script, json.dumps(asked))

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        report = _report(output)
        for part in ("prepare", "run", "cleanup"):
            if part in report:
                self._refuse_failed(part, report[part])
        ran = report["run"]
        if not self.parameters.metric:
            return (Measurement(self.metric, number(ran, "seconds")),)
        figure = _figure(self.parameters.metric, ran["out"])
        return (Measurement(self.metric, figure * UNITS[self.parameters.unit or "1"][1]),)

    def _refuse_failed(self, part: str, ended: Mapping[str, Any]) -> None:
        """Raises BadOutput if one of the command lines did not succeed."""
        if not ended["gone"]:
            raise BadOutput(f"{part}: processes that it started could not be killed")
        code, words = ended["code"], _last_line(ended["err"]) or _last_line(ended["out"])
        if code is None:
            raise BadOutput(f"{part}: no end within {self.parameters.timeout} s; raise timeout if it needs longer")
        if code in (self.parameters.exit_codes if part == "run" else (0,)):
            return
        how = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
        cure = "; it runs the programs of the image, not the host's: see `command` in the docs" * (code == NOT_FOUND)
        raise BadOutput(f"{part}: {how}{f': {words}' if words else ''}{cure}")

    def signature(self, case: str, output: str) -> str | None:
        return f"output {_report(output)['run']['out']['sha256'][:16]}" if self.parameters.same_output else None

    def own_seconds(self, case: str, output: str) -> float | None:
        return number(_report(output), "run", "seconds")

    def counted(self, case: str, output: str) -> Counted | None:
        report = _report(output)
        rest = number(report, "cleanup", "seconds") if "cleanup" in report else 0.0
        return Counted(number(report, "run", "seconds"), rest=rest)


def _report(output: str) -> dict[str, Any]:
    matches = REPORT.findall(output)
    if len(matches) != 1:
        raise BadOutput("the image's Python did not report how the command ended")
    report, _ = json_at(matches[0], 0)
    return report


def _figure(metric: str, out: Mapping[str, Any]) -> float:
    """The figure in an output. Raises BadOutput if there is none, or more than one."""
    where = " in the beginning and end of its output that are kept" if out["omitted"] else " in its output"
    text = out["first"] + ("\n" if out["omitted"] else "") + out["last"]
    if PATH.fullmatch(metric):
        keys = [int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+", metric)]
        return number(json_of(text), *keys, least=-1e18, most=1e18)
    figures = {match[1] for match in re.finditer(metric, text, re.MULTILINE)}
    if not figures:
        raise BadOutput(f"nothing matches {metric}{where}")
    if len(figures) > 1:
        raise BadOutput(f"{metric} matches {len(figures)} figures that differ{where}")
    figure = figures.pop()
    if figure is None or not NUMBER.fullmatch(figure):
        raise BadOutput(f"{metric} matches {str(figure)[:80]!r}, which is no number")
    return float(figure)


def _last_line(kept: Mapping[str, Any]) -> str:
    lines = str(kept["last"] or kept["first"]).strip().splitlines()
    return lines[-1][:200] if lines else ""
