"""The terms in reports and documentation, explained for readers who are not experts in measuring."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.workload import WORKLOADS

WORKLOAD_TITLES = ", ".join(f"{kind.title} ({kind.tool})" for kind in WORKLOADS.values())


@dataclass(frozen=True, slots=True)
class GlossaryTerm:
    """A term and its meaning in vmtax."""

    word: str
    meaning: str

    @property
    def id(self) -> str:
        """The anchor for links to the term."""
        return "term-" + "".join(c if c.isalnum() else "-" for c in self.word.lower())


GLOSSARY = tuple(
    GlossaryTerm(*pair)
    for pair in (
        ("A/A", "One configuration measured twice in every round, as if it were two. What differs between the two is"
                " chance: it shows the noise floor."),
        ("acknowledged", "A program asked for its data to be written to the disk, and was answered that they are"
                         " there. Acknowledged data must survive a power cut."),
        ("boot", "One start of one guest. A guest’s speed differs from boot to boot, so boots are counted: several"
                 " values of one boot become one value before anything is compared."),
        ("busy CPUs", "The average number of the host’s CPUs that did any work, the measurement included."),
        ("cached", "A disk figure that shows the speed of a cache in memory and not of the disk. Such a disk looks"
                   " faster in a VM than on the host."),
        ("configuration", "One thing that is compared: a layer with its settings, such as “vm disk.cache=writeback”."
                          " JSON and CSV call it `treatment`."),
        ("context switch", "The kernel stops one task and runs another."),
        ("control", "In durability trials: a program in every guest that acknowledges its writes without flushing them"
                    " to the disk. It must lose some of them; otherwise the trial would not notice a loss."),
        ("cost", "How much more time the same work takes on a layer. +3 % is 3 % more time; 24× is 24 times the"
                 " time. A negative cost is a gain."),
        ("durable", "Data that the guest flushed are still there after its host lost power."),
        ("emulated", "The guest’s CPU, or the CPU of the host under test itself, was computed by software (QEMU’s"
                     " TCG), because the hardware’s support (KVM) was not usable. This works, but it is many times"
                     " slower: an emulated figure does not show what virtualization costs."),
        ("fsync", "A program asks for its data to be written to the disk, and waits until they are. Databases do so at"
                  " every commit."),
        ("guest", "A virtual machine: the VM, or the nested VM."),
        ("host", "The machine under test without virtualization, and the layer that runs on it directly."),
        ("interval", "The range that contains the true figure in 95 of 100 such runs. A narrow interval is precise; an"
                     " interval that contains 0 means that a difference is not shown."),
        ("IOPS", "Reads or writes that the disk completes in one second."),
        ("iteration", "One execution of a workload in a boot. All iterations of a boot become one value; those at its"
                      " start that were warm-up do not count."),
        ("lab", "A guest that is a whole hypervisor host with KVM, disks and networks, to try things on."),
        ("latency", "The time that one operation takes, from request to answer."),
        ("layer", "Where the same work runs: on the host, in a VM, or in a nested VM."),
        ("median", "The middle value: half of the values are smaller, half are larger."),
        ("nested VM", "A VM inside a VM, as on a cloud machine that runs VMs of its own."),
        ("noise floor", "The cost of a guest against itself. It is measured with a second, equal guest in every round,"
                        " and shows how much of a cost may be chance."),
        ("outer VM", "The VM in which a nested VM runs. It has more memory and a larger disk than the nested VM needs."
                     " It is not the VM that is measured."),
        ("outlier", "A value far from the others of its configuration: its distance from their middle half is more than"
                    " one and a half times the width of that half. It still counts."),
        ("p50, p99, p99.9", "The time within which 50 %, 99 % or 99.9 % of the operations ended. One operation in a"
                            " hundred takes longer than p99."),
        ("page fault", "The first use of a piece of memory, for which the kernel must find room. It costs more in a"
                       " guest, where two kernels do so."),
        ("plan", "A YAML file that says what is measured: layers, settings, workloads, rounds."),
        ("pressure", "The share of the time in which some task of the host waited for a CPU, a disk or memory"
                     " (the kernel’s PSI). The measurement’s own waiting is included."),
        ("primary metric", "A metric that the error rate of a run is about. Other metrics are exploratory: of fifty of"
                           " them, two or three show a difference by chance."),
        ("queue depth", "The number of operations that are requested at once; with qd1, each one waits for the one"
                        " before."),
        ("round", "Every configuration once, in random order. Configurations are compared within a round, so that a"
                  " change in the machine’s speed affects all of them."),
        ("run", "One execution of a plan, with all its results, under an id such as 20261122-1320-quick-550e."),
        ("steal", "CPU time that the host asked for and did not get, because it is a VM and its hypervisor ran"
                  " something else. It is given in CPUs."),
        ("throttle", "The CPU slowed itself down, because it was too hot."),
        ("torn", "Data that are partly new and partly old, because the power failed in the middle of a write."),
        ("trial", "One execution of one part of one workload in one configuration."),
        ("VM", "A virtual machine on the host."),
        ("workload", f"A program that is run to measure: {WORKLOAD_TITLES}."),
    )
)  # fmt: skip

_BY_WORD = {term.word: term for term in GLOSSARY}
_ALSO = {"treatment": "configuration", "nested": "nested VM", "overhead": "cost"}  # synonyms that sections link


def term_id(word: str) -> str:
    """The anchor of a term. Raises KeyError for a word that is not in the glossary."""
    return _BY_WORD[_ALSO.get(word, word)].id
