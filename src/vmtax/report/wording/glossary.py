"""The report's own words, for a reader who does not measure for a living."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.workload import WORKLOADS

WORKLOAD_TITLES = ", ".join(f"{kind.title} ({kind.tool})" for kind in WORKLOADS.values())


@dataclass(frozen=True, slots=True)
class Term:
    """A word and what the report means by it."""

    word: str
    meaning: str

    @property
    def id(self) -> str:
        """Where links to it lead."""
        return "term-" + "".join(c if c.isalnum() else "-" for c in self.word.lower())


GLOSSARY = tuple(
    Term(*pair)
    for pair in (
        ("boot", "One start of one guest. A guest’s speed differs from boot to boot, so boots are what is counted:"
                 " several values of one boot are first made one."),
        ("busy CPUs", "How many of the host’s CPUs did anything at all on average, the measurement included."),
        ("context switch", "The kernel puts one task aside and runs another."),
        ("emulated", "Software (QEMU’s TCG) played the guest’s CPU because the hardware’s own help (KVM) was not"
                     " usable, or the CPU of the host under test itself. It works, and is many times slower: such a"
                     " figure is no cost of virtualization."),
        ("fsync", "A program asks that what it wrote is really on the disk, and waits for it. Databases do so at"
                  " every commit."),
        ("guest", "The machine that exists only as a program: the VM, or the nested VM."),
        ("interval", "The range in which the true figure lies, in 95 of 100 such runs. Narrow is sure, wide is"
                     " unsure; one that holds 0 shows no difference."),
        ("IOPS", "Operations, reads or writes, that the disk completes in one second."),
        ("iteration", "One run of a workload in a boot. All iterations of a boot are made one value, but for those at"
                      " its start that were found to be warm-up."),
        ("latency", "How long one operation takes, from asking to answer."),
        ("layer", "Where the same work runs: on the host, in a VM on it, or in a nested VM inside that VM."),
        ("median", "The middle value: half of the values are smaller, half are larger."),
        ("nested", "A VM inside a VM, as in a cloud machine that runs VMs of its own."),
        ("outlier", "A value far from the others of its treatment: more than one and a half times the width of their"
                    " middle half outside of it. It still counts."),
        ("overhead", "What a layer costs: the part of the throughput that is lost, or the time that is added, in"
                     " percent. Above 0 is a cost, below 0 a gain. Twice the time is 100 % more time, and 50 % of the"
                     " throughput lost."),
        ("p50, p99, p99.9", "So many percent of the operations took at most this long. p99 is what one operation in"
                            " a hundred exceeds; what people notice is there, not in the mean."),
        ("page fault", "The first touch of a piece of memory, for which the kernel must find room; dearer in a guest,"
                       " where two kernels do so."),
        ("pressure", "The share of the time in which some task of the host stood waiting for a CPU, a disk or memory"
                     " (the kernel’s PSI). The measurement’s own waiting is in it."),
        ("queue depth", "How many operations are asked for at once; qd1 waits for each before it asks for the next."),
        ("round", "Every treatment once, in an order drawn by lot. Treatments are compared within a round, so that a"
                  " machine that wanders in speed does so for all of them alike."),
        ("steal", "CPU time that the host itself wanted and did not get, because it is a VM and its own hypervisor"
                  " ran something else. Told in CPUs."),
        ("throttle", "The CPU slowed itself down, because it was too hot."),
        ("treatment", "One thing that is compared: a layer, with its settings. “vm disk.cache=writeback” is one."),
        ("trial", "One run of one part of one workload, under one treatment."),
        ("workload", f"What is run to measure: {WORKLOAD_TITLES}."),
    )
)  # fmt: skip

_BY_WORD = {term.word: term for term in GLOSSARY}


def term_id(word: str) -> str:
    """Where a link to the word leads. Raises KeyError for a word without a meaning."""
    return _BY_WORD[word].id
