"""A program of the user's own: a command line that runs on every layer, and its time or a figure that it prints."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from vmtax.core.machines import Machine
from vmtax.core.records import Better, Measurement, Metric, Unit
from vmtax.workload.base import Command, Counted, Measure, Parameters
from vmtax.workload.output import BadOutput, json_at, json_of, number
from vmtax.workload.site import TIMED, Access, PeerServer, Site, link_of

PYTHON = "/usr/bin/python3"  # of the image
FILES = "/usr/lib/vmtax/files.tar"  # of the image that was made for it
PORTS_APART = 3000  # its server's port is this much above that of the network's other tests
MOST_CASES = 100
NOT_FOUND = 127  # exit code of a shell for a program that is not there
LONGEST_LINE = 8192  # characters of a command line
PARTS = ("prepare", "run", "cleanup")
REPORT = re.compile(r"^vmtax command: (\{.*\})$", re.MULTILINE)
NUMBER = re.compile(r"[-+]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][-+]?\d{1,3})?", re.ASCII)
PATH = re.compile(r"(?:\.[A-Za-z_][\w-]*|\[\d{1,6}\])+", re.ASCII)
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{0,98}[a-z0-9+.]")  # apt removes what is named with a - at its end
VALUE = re.compile(r"[A-Za-z0-9+_./:-]{1,40}")
VALUE_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
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


def _value_lists(data: Any) -> Any:
    """A validator that takes whole numbers as text: {threads: [1, 2]}. Of others, YAML does not say how they were
    written: 0.10 is 0.1.
    """
    if not isinstance(data, Mapping):
        return data
    return {name: tuple(map(_written, each)) if isinstance(each, list | tuple) else each for name, each in data.items()}


def _written(value: Any) -> Any:
    if isinstance(value, float):
        raise ValueError(f"{value!r} must be in quotes, as it is to be written: '{value!r}'")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _file(name: str) -> str:
    if not name or "\0" in name:
        raise ValueError(f"{name[:60]!r} is no path of a file or directory")
    if any("\ud800" <= sign <= "\udfff" for sign in name):  # bytes of a name that are no UTF-8
        raise ValueError(f"{name[-60:]!a} is no path in UTF-8, and no run can hold another: name its directory")
    return name


def _package(name: str) -> str:
    if not PACKAGE.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no name of a Debian package, such as sysbench")
    return name


def _value(text: str) -> str:
    if not VALUE.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no value: 1 to 40 letters, digits and the signs + - _ . / : are")
    return text


def _value_name(text: str) -> str:
    if not VALUE_NAME.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no name: a small letter and up to 29 small letters, digits and _ are")
    return text


Line = Annotated[str, Field(max_length=LONGEST_LINE, pattern=r"^[^\x00]*$")]
Value = Annotated[str, AfterValidator(_value)]
ValueName = Annotated[str, AfterValidator(_value_name)]
ValueLists = dict[ValueName, Annotated[tuple[Value, ...], Field(min_length=1)]]
RESERVED = ("address", "port")  # placeholders of its server


class CommandParameters(Parameters):
    # The contents of `files` are part of the image
    reporting: ClassVar = frozenset({"files", "seconds", "timeout"})
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
    values: Annotated[ValueLists, BeforeValidator(_value_lists)] = Field(
        {},
        description="values that are tried one after the other, as `{threads: [1, 2, 4]}`; `{threads}` in a command"
        " line stands for them",
    )
    warmup: int = Field(0, ge=0, le=1000, description="how often `run` is run before it counts")
    packages: tuple[Annotated[str, AfterValidator(_package)], ...] = Field(
        (), max_length=100, description="Debian packages that it needs: an image with them is built once"
    )
    files: tuple[Annotated[str, AfterValidator(_file)], ...] = Field(
        (),
        max_length=100,
        description="files and directories of the machine that runs vmtax, from the plan's directory: a new copy of"
        " each is in the directory in which the command lines run",
    )
    serve: Line = Field(
        "",
        description="a command line that runs at the network peer, and serves TCP at `{address}` and `{port}`, where"
        " `run` finds it",
    )
    seconds: float = Field(10.0, gt=0, le=86400, description="about how long it takes on the host, for estimates")

    @classmethod
    def located(cls, given: Mapping[str, Any], directory: Path) -> dict[str, Any]:
        files = given.get("files")
        return {**given, **({"files": [str(directory / name) for name in files]} if files else {})}


class OwnCommand(Command[CommandParameters]):
    """Times the command line inside the machine, from the start of its shell to the end of the shell."""

    name = "command"
    describe = "a program of your own: a command line in the image's userland, its time or a figure that it prints"
    tool = "sh"
    title = "Own program"
    case_is_name = True
    # Those with which a program becomes another user: some servers refuse to run as root
    capabilities = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID")
    repeats_at_once = True
    emulated_start_seconds = 6.5  # Python starts
    headline = "command.program.seconds"
    measures: ClassVar = {
        "seconds": Measure("time from the start of the command line to its end", "time"),
        "figure": Measure("the figure that the program printed", "figure"),
    }
    parameters_type = CommandParameters

    @property
    def networked(self) -> bool:
        return bool(self.parameters.serve)

    @property
    def takes_bridge(self) -> str:
        return "command's serve" if self.parameters.serve else ""

    @property
    def program(self) -> str:
        """The first word of the command line, without its directory: part of the metric's name."""
        words = self.parameters.run.split()
        return _word(words[0].rpartition("/")[2] if words else "")[:40] or "program"

    def choices(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Each case, with the values that it tries."""
        names = list(self.parameters.values)
        for values in itertools.product(*self.parameters.values.values()):
            chosen = dict(zip(names, values, strict=True))
            yield "-".join([self.program, *(_word(f"{name}-{value}") for name, value in chosen.items())]), chosen

    def metric(self, case: str) -> Metric:
        given = self.parameters
        unit = UNITS[given.unit or "1"][0] if given.metric else "s"
        better: Better = given.better or ("lower" if unit in LOWER else "higher")
        return Metric(f"command.{case}.{'figure' if given.metric else 'seconds'}", unit, better)

    def cases(self) -> Sequence[str]:
        return tuple(case for case, _ in self.choices())

    def metrics(self) -> Sequence[Metric]:
        return tuple(map(self.metric, self.cases()))

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
        for name in ("unit", "better"):
            if getattr(given, name) and not given.metric:
                return f"{name} is that of metric: name the metric, or leave out {name}"
        if given.metric and UNITS[given.unit or "1"][0] == "1" and not given.better:
            return "metric needs unit, or better: lower or higher"
        if given.serve and not ("{port}" in given.serve and "{port}" in given.run):
            return "serve and run must both say {port}, the TCP port of the server at the peer"
        return self._why_not_values()

    def _why_not_values(self) -> str | None:
        given = self.parameters
        lines = " ".join((given.prepare, given.run, given.cleanup))
        for name, values in given.values.items():
            if name in RESERVED:
                return f"values: {name} stands for that of the server: take another name"
            if f"{{{name}}}" not in lines:
                return f"values: no command line says {{{name}}}, so {name} would change nothing"
            if len(set(values)) < len(values):
                return f"values: {name} has a value twice"
        cases = self.cases()
        if len(cases) > MOST_CASES:
            return f"values: {len(cases)} combinations, at most {MOST_CASES} are tried"
        if len(set(cases)) < len(cases):
            return "values: some differ only in signs, which are all written - in a metric's name"
        return None

    def seconds(self, case: str) -> float:
        return self.parameters.seconds * (self.parameters.warmup + 1)

    def limit(self, case: str, slowdown: float) -> float:
        given = self.parameters
        parts = [given.prepare, given.cleanup, given.serve, *[given.run] * (given.warmup + 1)]
        return float(given.timeout * len(list(filter(None, parts))))

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        if not self.parameters.serve:
            return super().seat(site)
        link = link_of(site)
        return link.machine, link.prefix

    def servers(self, address: str, port: int, access: Access) -> Sequence[PeerServer]:
        if not self.parameters.serve:
            return ()
        line = _filled(self.parameters.serve, {"address": address, "port": str(port + PORTS_APART)})
        return (PeerServer((*TIMED, "sh", "-c", line)),)

    def command(self, site: Site, case: str) -> Sequence[str]:
        script = resources.files("vmtax.workload").joinpath("inside.py").read_text(encoding="utf-8")
        given, values = self.parameters, dict(dict(self.choices())[case])
        server = None
        if given.serve:
            link = link_of(site)
            server = [link.address, link.port + PORTS_APART]
            values |= {"address": link.address, "port": str(server[1])}
        asked = {
            **{part: _filled(getattr(given, part), values) for part in PARTS},
            **given.model_dump(mode="json", include={"timeout", "warmup", "exit_codes"}),
            "files": FILES if given.files else "",
            "server": server,
        }
        return (PYTHON, "-I", "-c", script, json.dumps(asked))

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        report = _report(output)
        if not report["gone"]:
            raise BadOutput("processes that it started could not be killed")
        if "why_not" in report:
            raise BadOutput(report["why_not"])
        for part in PARTS:
            if part in report:
                self._refuse_failed(part, report[part])
        ran, metric = report["run"], self.metric(case)
        if not self.parameters.metric:
            return (Measurement(metric, number(ran, "seconds")),)
        figure = _figure(self.parameters.metric, ran["out"])
        return (Measurement(metric, figure * UNITS[self.parameters.unit or "1"][1]),)

    def _refuse_failed(self, part: str, ended: Mapping[str, Any]) -> None:
        """Raises BadOutput if one of the command lines did not succeed."""
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


def _word(text: str) -> str:
    return _WORD.sub("-", text).strip("-")


def _filled(line: str, values: Mapping[str, str]) -> str:
    """The line with the values in place of their names; other braces are left to the shell."""
    for name, value in values.items():
        line = line.replace(f"{{{name}}}", value)
    return line


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
