"""Names of workloads and metrics for people, including those that only another version of vmtax has. Pure."""

from __future__ import annotations

from typing import Any

from vmtax.core.records import Metric
from vmtax.workload import WORKLOADS
from vmtax.workload.base import CPU_PER_OPERATION, Workload


def title(workload: str) -> str:
    """The subject of a workload: "CPU"."""
    return WORKLOADS[workload].title if workload in WORKLOADS else workload.capitalize()


def within(text: str) -> str:
    """A title or name as written within a sentence: "kernel build", "VM exits"."""
    return " ".join(word if word[1:] != word[1:].lower() else word.lower() for word in text.split(" "))


def label(metric: Metric) -> str:
    """What tables call a metric's measure: "p99 latency"."""
    return _kind(metric).measure(metric).label


def phrase(metric: Metric) -> str:
    """What is lost or added, in a sentence: "memory bandwidth"."""
    return _kind(metric).phrase(metric)


def spoken(metric: Metric) -> str:
    """Such as "4 KiB random writes (one at a time)"; if a case has no such name, what tables call it."""
    if words := _kind(metric).spoken(metric):
        return words
    operations = _kind(metric).operations_of(metric.case)
    if not operations:
        return name(metric)
    return operations if metric.measure == "iops" else f"the {label(metric)} of {operations}"


def name(metric: Metric) -> str:
    """Title, case and label: "Disk randread-4k-qd1 operations"."""
    return " ".join(filter(None, (title(metric.workload), case(metric), label(metric))))


def case(metric: Metric) -> str:
    """The case; "" if there is none, or if the label includes it."""
    return "" if metric.name in _kind(metric).measures else metric.case


def subject(metric: Metric) -> str:
    """What costs: the title of its workload, or "make time" of a program of the user's own."""
    return spoken(metric) if _kind(metric).case_is_name else title(metric.workload)


def short(metric: Metric) -> str:
    """Title, case and label where there is little room and the unit is beside it: "disk randwrite-4k-qd1"."""
    if _kind(metric).case_is_name:
        return metric.case
    # The unit shows that it is a time
    measure = "" if metric.case and metric.measure in ("iops", "seconds") else label(metric)
    return " ".join(filter(None, (within(title(metric.workload)), case(metric), measure)))


def is_cpu_time(metric: Metric) -> bool:
    """Whether it measures how much CPU time something takes, not how fast it is."""
    return metric.measure == CPU_PER_OPERATION or metric.unit == "s/B"


def replaced(metric: Metric) -> bool:
    """Whether people are shown a derived metric instead."""
    return metric.measure in _kind(metric).replaced


def bytes_of(metric: Metric) -> int | None:
    """The size of its operations, if it counts operations and people give their rate in bytes; else None."""
    return _kind(metric).bytes_of(metric.case) if metric.measure == "iops" else None


def same_as(metric: Metric) -> str:
    """Name of the metric that is this one times a constant, and which people are shown; "" if there is none."""
    return _kind(metric).same_as(metric)


def may_be_zero(metric: Metric) -> bool:
    """Whether 0 is a valid value, as for a loss."""
    return _kind(metric).measure(metric).may_be_zero


def compared(workload: str) -> bool:
    """Whether its figures are compared as ratios; True for workloads of another version."""
    return WORKLOADS.get(workload, Workload).compared


def roles(workload: str) -> int:
    """How many kinds of work it gives to machines that work at once; 1 for workloads of another version."""
    return WORKLOADS.get(workload, Workload).roles


def _kind(metric: Metric) -> type[Workload[Any]]:
    return WORKLOADS.get(metric.workload, Workload)
