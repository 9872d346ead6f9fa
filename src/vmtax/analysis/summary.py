"""The few figures that answer the question of a run: shown by `show`, the page's tiles and `--json=summary`.

Each workload reports dozens of metrics, most of which are redundant: bandwidth is operations times their size, and the
mean latency is the time of one operation at a time. `FIGURES` names those that answer a question of their own, in the
order in which a reader asks them. A plan's primary metrics are always among the figures, because the plan is about
them; a workload that is not in the table is represented by the metric of its sentence.

For `quick` these are 14 figures: how fast a guest computes, moves memory, faults and switches; five ways to use a disk,
each limited by something else (the path of a single request for reads one at a time, the queue for 32 writes, the flush
for durable ones, the transfer for 1 MiB); the network in both directions, and the CPU time that it takes from
everything else; and how soon a guest answers. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import side_contrasts
from vmtax.analysis.effects import effect, layer_contrasts
from vmtax.analysis.noise import floor_of
from vmtax.core.notices import Code
from vmtax.core.records import Metric, Treatment, Verdict
from vmtax.workload import words

MEAN = "mean_seconds"

# Metric -> its label in the summary, at most 18 characters.
FIGURES: Mapping[str, str] = {
    "chess.nodes_per_second": "CPU, chess",
    "cpuid.instruction_seconds": "cpuid (VM exit)",
    "memory.stream.bytes_per_second": "memory bandwidth",
    "memory.faults.per_second": "page faults",
    "memory.switches.per_second": "context switches",
    "memory.forks.per_second": "processes",
    "tlb.chase-64m.access_seconds": "reads over 64 MiB",
    "tlb.shootdown.per_second": "TLB shootdowns",
    "wakeup.p50_seconds": "wake-up, median",
    "wakeup.p99_seconds": "wake-up, p99",
    "disk.randread-4k-qd1.iops": "random read 4 KiB",
    "disk.randwrite-4k-qd32.iops": "random write q32",
    "disk.randwrite-4k-fsync.iops": "fsync write 4 KiB",
    "disk.read-1m.iops": "sequential read",
    "disk.write-1m.iops": "sequential write",
    "net.tcp-in.bits_per_second": "network, inbound",
    "net.tcp-out.bits_per_second": "network, outbound",
    "net.tcp-in.host_cpu_seconds": "host's CPU, in",
    "net.tcp-out.host_cpu_seconds": "host's CPU, out",
    "net.tcp-in.local_seconds_per_byte": "iperf3's CPU, in",
    "net.tcp-out.local_seconds_per_byte": "iperf3's CPU, out",
    "net.udp-in.lost": "UDP loss, in",
    "net.udp-out.lost": "UDP loss, out",
    "latency.tcp-rr.p50_seconds": "TCP round trip",
    "latency.udp-rr.p50_seconds": "UDP round trip",
    "latency.udp-rr.p99_seconds": "UDP round trip p99",
    "latency.udp-rr-16.per_second": "small packets",
    "smb.in.bytes_per_second": "SMB copy in",
    "smb.out.bytes_per_second": "SMB copy out",
    "idle.host_cpu_seconds": "host CPU when idle",
    "boot.ready_seconds": "boot",
}
# The same for metrics that are only shown if a plan names them as primary.
LABELS: Mapping[str, str] = {
    "disk.read-1m.bytes_per_second": "sequential read",
    "disk.write-1m.bytes_per_second": "sequential write",
    "net.tcp-in.host_side_seconds": "host's side, in",
    "net.tcp-out.host_side_seconds": "host's side, out",
}
# Metric -> a more informative one that replaces it if it was measured: iperf3 cannot know whose CPU pays.
BETTER: Mapping[str, str] = {
    "net.tcp-in.local_seconds_per_byte": "net.tcp-in.host_cpu_seconds",
    "net.tcp-out.local_seconds_per_byte": "net.tcp-out.host_cpu_seconds",
}


@dataclass(frozen=True, slots=True)
class ShownConfiguration:
    """A configuration whose medians are shown: the first of its layer."""

    treatment: str  # name of the treatment
    layer: str  # host, vm or nested
    side: str  # `side` of the treatment
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True, slots=True)
class Contrast:
    """How long the same work takes in one configuration, compared with another: 1.031 is +3.1 %, 24 is 24 times the
    time.
    """

    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    ratio: float  # ratio of the times for the same work; NaN: no round has both
    low: float | None  # lower end of the ratio's interval; None: too few rounds, or all ratios are equal
    high: float | None  # upper end of the ratio's interval
    rounds: int  # rounds in which both have a value
    verdict: Verdict
    same: bool  # whether the cost is no more than that of a guest against itself in this run
    emulated: bool  # whether either side ran on an emulated CPU
    notes: tuple[Code, ...]  # codes of the notices about this figure, except `emulated`; `notices` of the run has their
    # causes and cures


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One metric that matters."""

    metric: Metric
    label: str  # short name of the metric, for people
    primary: bool  # whether it is a primary metric of the plan
    medians: tuple[float | None, ...]  # in the order of Summary.places, in the metric's unit
    contrasts: tuple[Contrast | None, ...]  # in the order of Summary.contrasts
    floor: float | None  # how far the interval of a guest against itself reaches, as a ratio of times above 1; None:
    # not measured


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one run."""

    places: tuple[ShownConfiguration, ...]  # layers from the host upward
    contrasts: tuple[tuple[str, str], ...]  # (baseline, treatment) of each column of costs
    figures: tuple[KeyFigure, ...]  # the figures, in the order in which a reader asks for them

    @property
    def floors(self) -> tuple[float, ...]:
        """The noise floors of all figures, the lowest first."""
        return tuple(sorted(figure.floor for figure in self.figures if figure.floor is not None))


def summary(analysis: Analysis) -> Summary:
    """About the layers or, if sides are interleaved, about these, because they are the question."""
    places = tuple(
        ShownConfiguration(t.name, t.layer, t.side, t.name in analysis.emulated)
        for t in _shown(analysis, set(_compared(analysis)))
    )
    names = [place.treatment for place in places]
    contrasts = tuple(pair for pair in _pairs(analysis) if set(pair) <= set(names))
    metrics = [metric for metric in _metrics(analysis) if any((metric, name) in analysis.medians for name in names)]
    made = tuple(_figure(metric, names, contrasts, analysis) for metric in metrics)
    kept = tuple(pair for place, pair in enumerate(contrasts) if any(figure.contrasts[place] for figure in made))
    return Summary(places, kept, tuple(_figure(metric, names, kept, analysis) for metric in metrics))


def said_once(found: Summary) -> Summary:
    """The summary for people: without figures that are a primary one times a constant, which they see instead."""
    names = {figure.metric.name for figure in found.figures}
    kept = (one for one in found.figures if one.primary or words.same_as(one.metric) not in names)
    return replace(found, figures=tuple(kept))


def _shown(analysis: Analysis, measured: set[str]) -> Iterator[Treatment]:
    """The first treatments of each layer, on each side, that have any figure."""
    return (treatment for name, treatment in analysis.firsts.items() if name in measured)


def _compared(analysis: Analysis) -> Iterator[str]:
    return (name for _, name in analysis.medians)


def _pairs(analysis: Analysis) -> Sequence[tuple[str, str]]:
    if analysis.sides is not None:
        return side_contrasts(analysis.experiment.treatments)
    return layer_contrasts(analysis.first_treatments())


def _metrics(analysis: Analysis) -> list[Metric]:
    """In the order of FIGURES; other metrics follow the figures of their workload."""
    measured = {metric.name: metric for metric, _ in analysis.medians}
    primary = [name for name in analysis.criteria.primary if name in measured]
    known = {measured[name].workload for name in (*FIGURES, *primary) if name in measured}
    rest = {workload: metric.name for workload, metric in analysis.headline_metrics.items() if workload not in known}
    first_seen = dict.fromkeys(metric.workload for metric in measured.values())
    workloads = {name: place for place, name in enumerate(first_seen)}
    order = {name: place for place, name in enumerate(dict.fromkeys((*FIGURES, *primary)))}
    worse = {name for name, better in BETTER.items() if better in measured and name not in primary}
    chosen = {name for name in (*FIGURES, *primary, *rest.values()) if name in measured and name not in worse}
    return sorted(
        (measured[name] for name in chosen),
        key=lambda metric: (workloads[metric.workload], order.get(metric.name, len(order))),
    )


def _figure(
    metric: Metric, names: Sequence[str], contrasts: Sequence[tuple[str, str]], analysis: Analysis
) -> KeyFigure:
    floor = floor_of(metric, analysis)
    return KeyFigure(
        metric,
        label(metric),
        metric.name in analysis.criteria.primary,
        tuple(analysis.medians.get((metric, name)) for name in names),
        tuple(contrast(analysis, metric, *pair, floor=floor) for pair in contrasts),
        floor,
    )


def label(metric: Metric) -> str:
    """The label of a metric; for one that is not in FIGURES: "disk randwrite-4k-qd1"."""
    if metric.measure == MEAN and metric.case:  # of a disk at a fixed rate, whose operations per second are no result
        return f"{label(replace(metric, name=metric.name.replace(MEAN, 'iops')))} mean"
    return FIGURES.get(metric.name) or LABELS.get(metric.name) or words.short(metric)


def contrast(
    analysis: Analysis, metric: Metric, baseline: str, treatment: str, floor: float | None = None
) -> Contrast | None:
    """The cost of `treatment` against `baseline`; None if these two were not compared."""
    found = effect(analysis, metric, baseline, treatment)
    if found is None:
        return None
    comparison = found.comparison
    ratio, low, high = found.times
    return Contrast(
        comparison.baseline,
        comparison.treatment,
        ratio,
        low,
        high,
        comparison.rounds,
        comparison.verdict,
        _is_same(ratio, low, high, floor),
        found.emulated,
        tuple(dict.fromkeys(notice.code for notice in comparison.notices if notice.code != "emulated")),
    )


def _is_same(ratio: float, low: float | None, high: float | None, floor: float | None) -> bool:
    """Whether the estimate is within the noise floor, and its interval within twice the noise floor."""
    if floor is None or low is None or high is None:
        return False
    reach = math.log(floor)
    return abs(math.log(ratio)) <= reach and max(-math.log(low), math.log(high)) <= 2 * reach
