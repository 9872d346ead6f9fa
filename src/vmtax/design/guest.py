"""Settings of a guest apart from its disks and networks. Each field is a factor of plans. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vmtax.core.layers import LAYERS
from vmtax.core.units import parse_bytes
from vmtax.design import hyperv
from vmtax.design.settings import (
    CLONED,
    ON_HOST,
    SWITCH,
    AllBut,
    Conflict,
    OtherLevels,
    ProgramOption,
    Settings,
    Where,
    is_on,
    setting,
)
from vmtax.design.size import MEMORY, VCPUS

MIB, GIB = 2**20, 2**30
# The parameter for each mitigation, according to the Linux kernel's documentation (admin-guide/hw-vuln,
# kernel-parameters). One mechanism clears CPU buffers against four attacks, so none of the four parameters alone turns
# it off.
ALONE = {
    "no-pti": "pti=off",
    "no-spectre_v1": "nospectre_v1",
    "no-spectre_v2": "spectre_v2=off",
    "no-retbleed": "retbleed=off",
    "no-spec_store_bypass": "spec_store_bypass_disable=off",
    "no-spec_rstack_overflow": "spec_rstack_overflow=off",
    "no-gather_data_sampling": "gather_data_sampling=off",
    "no-cpu-buffers": "mds=off tsx_async_abort=off mmio_stale_data=off reg_file_data_sampling=off",
}
COUNTS = ("1", "2", "3", "4", "6", "8", "12", "16", "24", "32", "48", "64")
OVERCOMMITS = ("1", "2", "4", "8")  # powers of two, for `_unshared`
HALT_POLLING = {"default": None, "off": 0, "50us": 50_000, "200us": 200_000, "1ms": 1_000_000}  # level -> ns
HPET = {"auto": None, "off": False, "on": True}
MODEL = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}"  # possible names of CPUs in QEMU


def _unshared() -> Iterator[Conflict]:
    """Numbers of guests and of their CPUs whose product is no multiple of the guest CPUs that share one."""
    for power, level in enumerate(OVERCOMMITS[1:], 1):
        for of_count in range(power):
            yield Conflict(
                {
                    "cpu.overcommit": (level,),
                    "guest.count": _divided(of_count, of_count),
                    VCPUS: _divided(0, power - of_count - 1),
                },
                "cpu.overcommit={overcommit}: {count} guests x {vcpus} vCPUs are no multiple of {overcommit}",
            )


def _divided(least: int, most: int) -> Where:
    """The numbers that two divides that often."""
    return Where(lambda number: least <= _twos(number) <= most)


def _twos(number: int) -> int:
    """How often two divides it."""
    return (number & -number).bit_length() - 1


class MemoryBacking(StrEnum):
    """What backs a guest's memory on the host."""

    THP = "thp"
    SMALL = "4k"
    MEMFD = "memfd"
    HUGE = "2MiB"
    GIGANTIC = "1GiB"

    @property
    def page_bytes(self) -> int | None:
        """The size of the huge pages that must be available for it; None if none are needed."""
        return {MemoryBacking.HUGE: 2 * MIB, MemoryBacking.GIGANTIC: 1024 * MIB}.get(self)

    def divides_not(self, memory: int) -> bool:
        """Whether that much memory is not a multiple of its huge pages."""
        return self.page_bytes is not None and memory % self.page_bytes != 0

    @property
    def is_shared(self) -> bool:
        """Whether it is a file in memory, which other processes could also open."""
        return self not in (MemoryBacking.THP, MemoryBacking.SMALL)


class MemoryNode(StrEnum):
    """Where a guest's memory is on a host with several NUMA nodes."""

    LOCAL = "local"
    REMOTE = "remote"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSettings(Settings):
    """The settings of a treatment's guest."""

    backing: MemoryBacking = setting(
        "memory.backing",
        tuple(MemoryBacking),
        MemoryBacking,
        "what the host has the guest's memory in: memory for which QEMU asks for transparent huge pages (thp), the same"
        " without them (4k), a file in memory (memfd), or one of huge pages (2MiB, 1GiB: taken for the run)",
        layers=ON_HOST,
        scope="guest",
        conflicts=(
            *(
                Conflict(
                    {"memory.backing": (kind,), MEMORY: Where(kind.divides_not, parse_bytes)},
                    f"memory.backing={kind}: guest.memory of {{memory}} is not a multiple of that",
                )
                for kind in (MemoryBacking.HUGE, MemoryBacking.GIGANTIC)
            ),
            Conflict(
                {"memory.backing": (MemoryBacking.GIGANTIC,), MEMORY: Where((2 * GIB).__gt__, parse_bytes)},
                "memory.backing=1GiB: guest.memory must be 2GiB or more, and is {memory}: the first GiB of a guest has"
                " gaps (VGA, firmware), so KVM maps it in smaller pages",
            ),
        ),
    )
    merge: bool = setting(
        "memory.merge",
        SWITCH,
        is_on,
        "whether the host's ksmd may merge equal pages of guests; QEMU's own default is on, and then several guests"
        " are measured with an unknown part of their memory shared",
        layers=ON_HOST,
        scope="guest",
    )
    node: MemoryNode = setting(
        "memory.node",
        tuple(MemoryNode),
        MemoryNode,
        "on a host with several NUMA nodes, where the guest's memory is: on the node of its CPUs (local), on another"
        " one (remote), or on all of them, page by page (interleaved). Huge pages are taken on that node, for the whole"
        " run",
        layers=("vm",),
        scope="guest",
    )
    balloon: str = setting(
        "guest.balloon",
        ("none", "deflated", "half"),
        str,
        "a balloon (virtio-balloon), by which the host takes memory back while the guest runs: none; there and empty"
        " (deflated); or inflated to half of the guest's memory before anything is measured",
        layers=("vm",),
        scope="guest",
        options={"device": ProgramOption("", dict.fromkeys(("deflated", "half"), "virtio-balloon-pci"))},
        conflicts=(
            Conflict(
                {"guest.balloon": ("half",), "memory.backing": (MemoryBacking.HUGE, MemoryBacking.GIGANTIC)},
                "guest.balloon=half gives pages of 4 KiB back, and memory.backing={backing} has none",
            ),
        ),
    )
    model: str = setting(
        "cpu.model",
        ("host", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
        str,
        "the CPU that the guest sees: all that the host's has (emulated: all that QEMU emulates), a level of the x86-64"
        " psABI, or a model that QEMU knows by name, such as Nehalem; QEMU must be able to give all of its features",
        layers=CLONED,
        scope="guest",
        others=OtherLevels(MODEL),
    )
    topology: str = setting(
        "cpu.topology",
        ("cores", "sockets", "threads"),
        str,
        "what the guest takes its CPUs for: cores of one socket, sockets of one core each, or two threads to a core",
        layers=CLONED,
        scope="guest",
        conflicts=(
            Conflict(
                {"cpu.topology": ("threads",), VCPUS: Where(lambda count: count % 2 == 1)},
                "cpu.topology=threads takes an even number of CPUs, and guest.vcpus is {vcpus}",
            ),
        ),
    )
    pinned: bool = setting(
        "cpu.pinning",
        ("none", "one-to-one"),
        lambda level: level == "one-to-one",
        "whether each CPU of a guest is held to one CPU of the host, on a core that cpu.siblings chooses, and all other"
        " threads of its QEMU to the CPUs that are left, of which there must be one, on cores without a guest's CPU"
        " where there are any",
        layers=("vm",),
        scope="guest",
    )
    siblings: str = setting(
        "cpu.siblings",
        ("auto", "apart", "together"),
        str,
        "on a host whose cores have two threads, where a guest's CPUs are pinned: each to a core of its own as long as"
        " there is one, but two to the two threads of a core with cpu.topology=threads (auto); in any case to a core of"
        " its own (apart), or two to a core (together). The host layer has cores of its own as long as there are any",
        layers=("vm",),
        scope="guest",
        only_with={"cpu.pinning": ("one-to-one",)},
        conflicts=(
            Conflict(
                {"cpu.siblings": ("together",), VCPUS: Where(lambda count: count % 2 == 1)},
                "cpu.siblings=together takes an even number of CPUs, and guest.vcpus is {vcpus}",
            ),
        ),
    )
    isolated: bool = setting(
        "cpu.isolation",
        ("none", "partition"),
        lambda level: level == "partition",
        "whether other programs of the host may run on the CPUs to which those of a guest are pinned: any (none), or"
        " not one (partition: an isolated cpuset of cgroup v2, while the guest runs). Interrupts, and what the kernel"
        " does on each CPU, stay. The host layer works on the same CPUs, which are not isolated then",
        layers=("vm",),
        scope="guest",
        only_with={"cpu.pinning": ("one-to-one",)},
        conflicts=(
            Conflict(
                {"cpu.isolation": ("partition",), "disk.page_cache": ("bounded",)},
                "cpu.isolation=partition puts a guest's CPUs into a control group of their own, and"
                " disk.page_cache=bounded all threads of its QEMU into one",
            ),
        ),
    )
    halt_polling: int | None = setting(
        "cpu.halt_polling",
        HALT_POLLING,
        HALT_POLLING.get,
        "how long KVM waits on a CPU that its guest has halted before another may have it: what the host has set, not"
        " at all, or this long at most; the host's kvm.halt_poll_ns, set for the boot and put back",
        layers=("vm",),
        scope="guest",
    )
    timer: str = setting(
        "cpu.timer",
        ("auto", "kvm-clock", "tsc", "hpet", "acpi_pm"),
        str,
        "the clock that the guest's kernel reads the time from: its own choice, or one of these (hpet: QEMU adds it);"
        " each read of hpet or acpi_pm leaves the guest, one of kvm-clock or tsc does not",
        scope="guest",
        options={
            "kernel": ProgramOption(
                "",
                {
                    "kvm-clock": "clocksource=kvm-clock",
                    "tsc": "clocksource=tsc tsc=reliable",
                    "hpet": "clocksource=hpet",
                    "acpi_pm": "clocksource=acpi_pm",
                },
            )
        },
    )
    hyperv: str = setting(
        "cpu.hyperv",
        hyperv.LEVELS,
        str,
        "what the guest sees of the interface that KVM offers to Windows, Hyper-V's: nothing, but KVM's own (off);"
        " neither of the two (hidden); all that is listed here (all), or one of them with those that it needs and"
        f" {hyperv.BASE}, or several joined by +. At each level but off, a Linux guest takes itself for"
        " a guest of Hyper-V, as far as it has that interface; only KVM has it",
        layers=CLONED,
        scope="guest",
        others=OtherLevels(hyperv.SETS, form="several of the parts after all, joined by +, as vapic+time"),
        conflicts=(
            Conflict(
                {"cpu.hyperv": AllBut(hyperv.OFF), "cpu.timer": ("kvm-clock",)},
                "cpu.hyperv={hyperv} hides KVM from the guest, and with it cpu.timer=kvm-clock",
            ),
        ),
    )
    hpet: bool | None = setting(
        "guest.hpet",
        HPET,
        HPET.get,
        "whether the guest has an HPET, a timer that QEMU emulates; auto: not on KVM, QEMU's default elsewhere. On KVM,"
        " Linux needs it only while it boots, but QEMU serves it from then on, some hundred times a second, also while"
        " the guest is idle; so virt-install leaves it out, while QEMU's own default is on",
        layers=CLONED,
        scope="guest",
        only_with={"cpu.timer": ("auto", "kvm-clock", "tsc", "acpi_pm")},
    )
    mitigations: str = setting(
        "cpu.mitigations",
        ("auto", "off", *ALONE),
        str,
        "the guest kernel's defences against speculation attacks: its own choice, none (mitigations=off on its command"
        " line), or its own choice without one",
        scope="guest",
        options={"kernel": ProgramOption("", {"off": "mitigations=off", **ALONE})},
    )
    count: int = setting(
        "guest.count",
        COUNTS,
        int,
        "how many guests of one kind do the same work at the same time, each with a disk and an address of its own;"
        " their rates are added up. Nested guests share an outer VM that has the CPUs and the memory of all of them;"
        " a host does the work in as many sets of processes, on the CPUs of all of them together, and in as many"
        " containers, each on CPUs of its own",
        layers=tuple(LAYERS),
        scope="guest",
    )
    outer: str = setting(
        "guest.outer",
        ("shared", "own"),
        str,
        "what several nested guests run in: one outer VM that they share, or an outer VM for each",
        layers=("nested",),
        scope="guest",
        only_with={"guest.count": COUNTS[1:]},
    )
    outer_cpus: int = setting(
        "guest.outer_cpus",
        ("1", "2", "4", "8"),
        int,
        "how many times the CPUs of its nested guests an outer VM has; its kernel and their QEMUs may use all of them,"
        " nested guests have as many as ever, and are compared with the same VM and host",
        layers=("nested",),
        scope="guest",
    )
    overcommit: int = setting(
        "cpu.overcommit",
        OVERCOMMITS,
        int,
        "how many guest CPUs share one CPU of the host, if several guests work at the same time: all threads of their"
        " QEMUs are held to that many times fewer CPUs, as are the sets of processes of the host, and containers",
        layers=("host", "container", "vm"),
        scope="guest",
        only_with={"guest.count": COUNTS[1:]},
        conflicts=(
            *_unshared(),
            Conflict(
                {"cpu.overcommit": OVERCOMMITS[1:], "cpu.pinning": ("one-to-one",)},
                "cpu.overcommit={overcommit} lets guest CPUs share those of the host, which"
                " cpu.pinning=one-to-one gives to one each",
            ),
        ),
    )
    exit_trace: bool = setting(
        "guest.exit_trace",
        SWITCH,
        is_on,
        "whether the kernel that runs the guest also counts its exits to KVM by their reason; that makes each exit a"
        " little slower, so it is off unless reasons, or their price, are asked for",
        scope="guest",
    )
    cycles: bool = setting(
        "guest.cycles",
        SWITCH,
        is_on,
        "whether the CPU itself counts the cycles of the guest's QEMU, in guest code and outside of it, as"
        " `perf stat -e cycles:G,cycles:H` does; that takes a PMU and makes each exit a little slower, so it is off"
        " unless it is asked for",
        scope="guest",
    )

    @property
    def paired(self) -> bool:
        """Whether two CPUs of a pinned guest are held to the two threads of a core."""
        return self.siblings == "together" or (self.siblings == "auto" and self.topology == "threads")


DEFAULT = GuestSettings()  # every factor at its default


COUNT = GuestSettings.factors()["count"]  # how many machines work at once
OVERCOMMIT = GuestSettings.factors()["overcommit"]  # how many of their CPUs share one
