"""stress-ng: its command, its output with --metrics, and workloads whose cases are its stressors."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import Command, Parameters
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import Site

PACKAGE = "stress-ng"
NANOSECOND = 1e-9
# Not its notes on what may improve results: those are about the machine.
DOUBTS = (
    r"stress-ng: (?:fail|error): ",
    r"(?:skipped|failed|metrics untrustworthy): +(?!0\s*$)",
    r"finished prematurely|unsuccessful run completed",
    r"metrics-check: (?!all stressor metrics validated)",
    r"metrics? (?:may|maybe|might) |data (?:may|might) be|bogo.?ops counter",
    r"\b(?:killed|terminated) (?:by|on|with)\b|\bOOM\b|out of memory",
    r"stress-ng: warn: .*\b(?:clock|timer|time) .*(?:back|skew|unstable|drift|overflow)",
)

P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True, slots=True)
class Stressor:
    """The stressor that stress-ng runs for a case, and which of its figures is the result."""

    name: str  # as stress-ng names it
    metric: Metric
    labels: tuple[str, ...] = ()  # the stressor's own figures, which are added up; (): its operations per second
    scale: float = 1.0  # from the figure's unit to the metric's
    # One instance for each CPU, whose rates are added up; otherwise a single one, so that none waits for another
    on_all: bool = False
    options: tuple[str, ...] = ()
    each: int = 1  # actions per operation of stress-ng, if the result is the time of one action

    def value(self, output: str) -> float:
        """In the metric's unit. Pure; raises BadOutput."""
        instances = passed(self.name, output)
        if self.labels:
            # The stressor's own figure is the mean over the instances.
            value = instances * self.scale * sum(figure(self.name, label, output) for label in self.labels)
        else:
            value = operations_per_second(self.name, output)
        return value


class Stressing(Command[P]):
    """A workload whose cases are stressors."""

    tool = "stress-ng"
    packages = (PACKAGE,)
    repeats_at_once = True
    doubts = DOUBTS
    stressors: ClassVar[Mapping[str, Stressor]]  # case -> its stressor

    @abstractmethod
    def seconds(self, case: str) -> float:
        """The run length of a case."""

    def cases(self) -> Sequence[str]:
        return tuple(self.stressors)

    def metrics(self) -> Sequence[Metric]:
        return tuple(self.stressors[case].metric for case in self.cases())

    def command(self, site: Site, case: str) -> Sequence[str]:
        stressor = self.stressors[case]
        return command(stressor.name, site.vcpus if stressor.on_all else 1, self.seconds(case), *stressor.options)

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        stressor = self.stressors[case]
        return (Measurement(stressor.metric, stressor.value(output)),)

    def operations(self, case: str, output: str) -> float | None:
        """The number of actions that the figure counts or times; None if it counts bytes."""
        stressor, seconds = self.stressors[case], self.own_seconds(case, output)
        if stressor.metric.unit == "1/s" and stressor.labels:
            return None if seconds is None else seconds * stressor.value(output)
        count = operations(stressor.name, output)
        return None if count is None or stressor.metric.unit == "B/s" else stressor.each * count

    def own_seconds(self, case: str, output: str) -> float | None:
        return own_seconds(self.stressors[case].name, output)


def command(stressor: str, instances: int, seconds: float, *more: str) -> tuple[str, ...]:
    """The argv that runs a stressor for `seconds`."""
    timed = ("--timeout", f"{seconds:.0f}", "--metrics", "--temp-path", "/tmp")
    return ("stress-ng", f"--{stressor}", str(instances), *more, *timed)


def passed(stressor: str, output: str) -> int:
    """The number of instances that ran. Raises BadOutput if one failed."""
    match = only(rf"passed: (\d{{1,9}}): {stressor} ", output)
    if match is None or not re.search(r"failed: 0$", output, re.MULTILINE):
        raise BadOutput(f"stress-ng does not say 'passed: N: {stressor}' and 'failed: 0'")
    return int(match[1])


def figure(stressor: str, label: str, output: str) -> float:
    """A figure of the stressor's own, the harmonic mean over its instances."""
    match = only(rf"{stressor} +([-+.\w]+) {re.escape(label)} \(harmonic mean of (?P<all>\d{{1,9}}) inst", output)
    if match is not None:
        if int(match["all"]) != (ran := passed(stressor, output)):
            raise BadOutput(f"stress-ng's {label} is of {match['all']} instances of {stressor}, but {ran} ran")
        return _figure(match[1], label)
    if short := re.search(rf"{stressor}: (run duration too short\b.*)", output):
        raise BadOutput(f"stress-ng's {stressor}: {short[1]}; raise the workload's seconds in the plan")
    raise BadOutput(f"stress-ng prints no '{label}' for {stressor}")


def operations(stressor: str, output: str) -> int | None:
    """The column "bogo ops", of all instances together; None if it is not there."""
    match = only(rf"metrc: \[\d+\] {stressor} +(\d+) +[0-9.]+ ", output)
    return int(match[1]) if match else None


def operations_per_second(stressor: str, output: str) -> float:
    """The column "bogo ops/s (real time)", of all instances together."""
    match = only(rf"metrc: \[\d+\] {stressor} +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +([-+.\w]+)", output)
    if match is None:
        raise BadOutput(f"stress-ng prints no line of metrics for {stressor}")
    return _figure(match[1], "bogo ops/s")


def own_seconds(stressor: str, output: str) -> float | None:
    """The column "real time (secs)"; None if it is not there."""
    match = only(rf"metrc: \[\d+\] {stressor} +\d+ +([-+.\w]+) ", output)
    return _figure(match[1], "real time") if match else None


def _figure(text: str, label: str) -> float:
    if not re.fullmatch(r"\d{1,18}(\.\d{1,18})?", text, re.ASCII):
        raise BadOutput(f"stress-ng's {label} is {text[:80]}, which is no number")
    return float(text)
