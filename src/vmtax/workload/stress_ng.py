"""What stress-ng prints with --metrics. Pure; functions raise BadOutput."""

from __future__ import annotations

import re

from vmtax.workload.base import BadOutput

PACKAGE = "stress-ng"


def command(stressor: str, instances: int, seconds: float, *more: str) -> tuple[str, ...]:
    """The argv that runs a stressor for `seconds`."""
    timed = ("--timeout", f"{seconds:.0f}", "--metrics", "--temp-path", "/tmp")
    return ("stress-ng", f"--{stressor}", str(instances), *more, *timed)


def passed(stressor: str, output: str) -> int:
    """How many instances ran, none of which may have failed."""
    match = re.search(rf"passed: (\d+): {stressor} ", output)
    if match is None or not re.search(r"failed: 0$", output, re.MULTILINE):
        raise BadOutput(f"stress-ng does not say 'passed: N: {stressor}' and 'failed: 0'")
    return int(match[1])


def figure(stressor: str, label: str, output: str) -> float:
    """A figure of the stressor's own, the harmonic mean over its instances."""
    match = re.search(rf"{stressor} +([0-9.]+) {label} \(harmonic mean", output)
    if match is None:
        raise BadOutput(f"stress-ng prints no '{label}' for {stressor}")
    return float(match[1])


def operations_per_second(stressor: str, output: str) -> float:
    """The column "bogo ops/s (real time)", of all instances together."""
    match = re.search(rf"metrc: \[\d+\] {stressor} +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +([0-9.]+)", output)
    if match is None:
        raise BadOutput(f"stress-ng prints no line of metrics for {stressor}")
    return float(match[1])


def own_seconds(stressor: str, output: str) -> float | None:
    """The column "real time (secs)"; None where it is not there."""
    match = re.search(rf"metrc: \[\d+\] {stressor} +\d+ +([0-9.]+) ", output)
    return float(match[1]) if match else None
