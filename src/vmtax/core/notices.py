"""Warnings as records: a code, the cause, the effect on which figures, and what to do about it.

Every code is listed once in `MEANINGS`; docs/reference/warnings.md is generated from that table. Sentences have no full
stop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Code = Literal[
    "failed",
    "refused",
    "background-load",
    "emulated",
    "cached",
    "perhaps-cached",
    "few-rounds",
    "coarse",
    "missing-rounds",
    "few-operations",
    "not-positive",
    "stalls",
    "carry-over",
    "clock",
    "late-command",
    "apart",
    "ticks",
    "second-boot",
    "restless",
    "shutdown",
    "two-hosts",
    "two-factors",
    "stopped-early",
    "mixed-runs",
    "boots-as-sessions",
    "boots-of-calibrations",
    "borrowed-variance",
    "one-side",
    "other",
]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a code, for any run."""

    label: str  # a few words, for footnotes
    cause: str  # the cause in general; a notice gives the cause in its run
    effect: str  # the effect on the affected figures
    cure: str  # what to do; a notice may give better advice


# The most serious first: reports use this order.
MEANINGS: Mapping[Code, Meaning] = {
    "failed": Meaning(
        "a measurement failed",
        "A command, a boot or a machine failed",
        "The figure has no value from these rounds and rests on the others",
        "Remove the cause, then run more rounds",
    ),
    "refused": Meaning(
        "a result was refused",
        "A command worked, but its result cannot be compared with those of the other configurations",
        "The figure has no value from these rounds and rests on the others",
        "Remove the cause, then run more rounds",
    ),
    "background-load": Meaning(
        "other programs used the CPUs",
        "Some task waited for a CPU during many of the host's own measurements, so other programs ran there",
        "All figures scatter more, and the host may look slower than it is",
        "End the other programs, or wait, and repeat the run",
    ),
    "emulated": Meaning(
        "emulated CPU",
        "The configuration ran on an emulated CPU (TCG)",
        "The figure shows that everything works, not what the hardware costs",
        "Repeat the run where /dev/kvm works",
    ),
    "cached": Meaning(
        "answered by a cache",
        "A disk is faster than what lies below it, so a cache or read-ahead took part",
        "The figure is the speed of a cache rather than of the disk",
        "Repeat with a workloads.disk.size well above the memory of guest and host",
    ),
    "perhaps-cached": Meaning(
        "faster than what lies below it, in too few rounds",
        "A disk is faster than what lies below it, but no interval shows it",
        "The figure may be chance, a disturbance of the other side, or the speed of a cache rather than of the disk",
        "Run more rounds; if these agree, repeat with a workloads.disk.size well above the memory of guest and host",
    ),
    "few-rounds": Meaning(
        "too few rounds for an interval",
        "An interval needs more rounds than have a value on both sides",
        "The figure has no interval and may be chance",
        "Run more rounds, for example with --rounds 7",
    ),
    "coarse": Meaning(
        "steps too coarse for an interval",
        "The ratio is the same to the last digit in all rounds, because the metric's steps are too coarse",
        "The figure has no interval, since chance does not show in it",
        "Make the workload longer",
    ),
    "missing-rounds": Meaning(
        "rounds without a result",
        "Some rounds have no result, and no failure was recorded",
        "The figure rests on the other rounds",
        "Run more rounds",
    ),
    "few-operations": Meaning(
        "too few operations for this percentile",
        "Some rounds had too few operations for this percentile",
        "The figure rests on the other rounds",
        "Make the workload longer, or leave this percentile out",
    ),
    "not-positive": Meaning(
        "values that are not above 0",
        "Some rounds have a value that is not above 0 and so has no ratio",
        "The figure rests on the other rounds",
        "Make the workload larger or longer",
    ),
    "stalls": Meaning(
        "stalls that the median does not show",
        "One side stalls more often than the other: it has more values slower than 1.5 times their median",
        "The cost is that of typical values and does not include the stalls",
        "Look at the ratio of the means as well: mean_ratio in the JSON answer",
    ),
    "carry-over": Meaning(
        "depends on which ran first",
        "The ratio depends on which of the two configurations ran first",
        "The order is random, so the interval still holds, but it is wider than it could be",
        "Repeat the run on a machine whose clock frequency and temperature are steady",
    ),
    "clock": Meaning(
        "a clock was wrong",
        "The clock of a guest or a tool counted more or less time than really passed",
        "Rates and times of these rounds are wrong to the same extent as the clock",
        "Repeat the run while nothing else runs on the host, and look at clocksource in that machine's facts",
    ),
    "late-command": Meaning(
        "a command ended late, so perhaps wrong",
        "A command took longer than its own work and its start explain, so it waited or its clock stood still",
        "Rates and times of these rounds may be wrong",
        "Repeat while nothing else runs on the host",
    ),
    "apart": Meaning(
        "not all worked at the same time",
        "Of several machines that are measured at once, some began later or ended earlier than the others",
        "The rates of those that worked longer include time in which they had more of the host to themselves",
        "Make the workload longer",
    ),
    "ticks": Meaning(
        "the kernel's ticks split the time of vCPUs",
        "vmtax could not sample in whose code a guest's vCPUs are",
        "The host's CPU time outside guest code is less exact, and wrong if the guest works in step with the ticks",
        "If that was not permitted, measure as root, or set kernel.perf_event_paranoid=1 on the host; a container needs"
        " CAP_PERFMON and a seccomp profile that allows perf_event_open",
    ),
    "second-boot": Meaning(
        "booted at the second attempt",
        "A guest was lost while it booted, and booted at the second attempt",
        "The boot time is that of the second attempt; other figures are those of a fresh guest",
        "Try another QEMU (--qemu) where it happens often",
    ),
    "restless": Meaning(
        "the clone may not have come to rest",
        "A clone of a VM may still have worked by itself when it was measured",
        "What it did by itself, if anything, is in its figures, in some rounds more than in others",
        "See in the VM what its system does after a boot (updates, indexing, antivirus), and let it end there first",
    ),
    "shutdown": Meaning(
        "the guest did not shut down by itself",
        "A guest did not shut down by itself",
        "The time to shut down has no value from these rounds; the other figures were measured before",
        "Read the guest's console in the raw output of its boot",
    ),
    "two-hosts": Meaning(
        "two hosts in one session",
        "Two hosts were measured, and each changes in speed by itself",
        "The interval is about this session and no other",
        "Repeat the run in other sessions, and believe in what they agree on",
    ),
    "two-factors": Meaning(
        "differs in a second setting",
        "No level of a setting that the plan does not name goes with all levels of one that it names, so both differ",
        "The figure is the cost of both together",
        "Read it as a choice between two ways as a whole, or name levels that go with one level of the other setting",
    ),
    "stopped-early": Meaning(
        "a run was stopped early",
        "A run was stopped before its last round",
        "The interval is wider than planned",
        "Finish the run with vmtax run --resume",
    ),
    "mixed-runs": Meaning(
        "runs of one side differ",
        "The machines of the runs on one side differ from each other",
        "The result compares one mixture of machines with another",
        "For each side, name only runs on machines in the same state",
    ),
    "boots-as-sessions": Meaning(
        "fewer boots of the host than runs",
        "The host was rebooted between the sides, so the runs of one boot count as one session",
        "The interval is wider than the number of runs suggests",
        "Reboot the host between sessions",
    ),
    "boots-of-calibrations": Meaning(
        "calibrations of too few boots",
        "The calibrations cover too few boots of the host to show what a reboot changes",
        "The interval may be too narrow",
        "Calibrate in three boots or more",
    ),
    "borrowed-variance": Meaning(
        "variance of another configuration",
        "A configuration was not calibrated, so the variance between sessions of another one is used for it",
        "The interval may be too narrow or too wide",
        "Calibrate this configuration as well",
    ),
    "one-side": Meaning(
        "on one side only",
        "A configuration was measured on one side only",
        "It is not compared",
        "Run the same plan on both sides",
    ),
    "other": Meaning(
        "see the warnings",
        "A warning of another version of vmtax",
        "The warning itself says what it does to the figures",
        "The warning itself says what to do",
    ),
}

# Patterns of texts that earlier versions stored with trials and boots -> present code.
_EARLIER: tuple[tuple[str, Code], ...] = (
    (r"booted at the second attempt: (?P<cause>.*)", "second-boot"),
    (r"(?P<cause>(did not shut down within|QEMU crashed in the shutdown).*)", "shutdown"),
    (r"(?P<cause>the \S+ command took .* by our clock, .*?)(: run it again idle)?", "late-command"),
    (r"clock: (?P<cause>\S+ accounts for .*?)(; repeat while .*)?", "late-command"),
    (r"clock: (?P<cause>.*?); repeat while .*", "clock"),
)


@dataclass(frozen=True, slots=True)
class Notice:
    """One warning: its cause, and the treatments and metrics whose figures it affects."""

    code: Code
    cause: str  # one sentence about this run
    cure: str = ""  # what to do; "": as in MEANINGS
    treatments: tuple[str, ...] = ()  # Treatment.name; empty: all of the run
    metrics: tuple[str, ...] = ()  # Metric.name; empty: all
    rounds: tuple[int, ...] = ()  # from 1; empty: all, or it is about no rounds
    lacking: tuple[str, ...] = ()  # further Metric.name that have no value because of it; in no JSON answer

    @property
    def effect(self) -> str:
        """The effect on the affected figures, in one sentence."""
        return MEANINGS[self.code].effect

    @property
    def remedy(self) -> str:
        """What to do about it, in one sentence."""
        return self.cure or MEANINGS[self.code].cure

    @property
    def text(self) -> str:
        """Everything in one line, as in JSON's text fields."""
        if self.code == "other":
            return self.cause
        return f"{self.code}: {sentence(self.cause)} {sentence(self.effect)} {sentence(self.remedy)}"


def recorded(code: Code, cause: str) -> str:
    """A warning about one trial or one boot, in the format that is stored with it."""
    return f"{code}: {cause}"


def read(text: str) -> Notice:
    """Convert text stored with a trial or a boot to a notice, including that of earlier versions; `other` if none
    matches.
    """
    for pattern, code in _EARLIER:
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return Notice(code, whole(found["cause"]))
    first, _, rest = text.partition(": ")
    return next((Notice(code, rest) for code in get_args(Code) if code == first and rest), Notice("other", text))


def whole(error: str) -> str:
    """The first line of an error stored by earlier versions, without its announcement of further lines."""
    return re.sub(r"; (its console|it) last said$", "", error)


def sentence(text: str) -> str:
    """The sentence with its full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
