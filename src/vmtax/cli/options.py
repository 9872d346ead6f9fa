"""Options that several commands share, and their completion in the shell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vmtax.cli.completion import before_word
from vmtax.plan.names import builtin_plans
from vmtax.report.render.formats import FORMATS


def complete_layers(incomplete: str) -> list[str]:
    """Layers, after those that are typed already."""
    from vmtax.core.layers import LAYERS

    return _after_comma(incomplete, [name for name, layer in LAYERS.items() if not layer.keeps])


def complete_host(incomplete: str) -> list[str]:
    """This host, the labs, and the hosts of the runs in the store."""
    from vmtax.core.errors import CannotDo
    from vmtax.lab.names import lab_names
    from vmtax.store.listing import listed

    found = ["local", "lab"]
    with contextlib.suppress(CannotDo, OSError):  # the command itself will report the error
        found += [f"lab:{name}" for name in lab_names() if name != "lab"]
    found += [run.host for run in listed() if run.host.startswith("ssh://")]
    return [name for name in dict.fromkeys([*found, "ssh://"]) if name.startswith(incomplete) and " " not in name]


def complete_weights(incomplete: str) -> list[str]:
    """Metrics of disks that were measured, each followed by the = before its weight."""
    from vmtax.store.listing import disk_metrics

    return _after_comma(incomplete, [f"{name}=" for name in disk_metrics()])


def factor_levels(incomplete: str) -> list[str]:
    """Completions of FACTOR=LEVEL,...: factors, or levels that are not typed yet."""
    from vmtax.design.factors import FACTORS

    name, equals, listed = incomplete.partition("=")
    names = [name] if equals else [factor for factor in FACTORS if factor.startswith(name)]
    if len(names) != 1 or names[0] not in FACTORS:
        return [f"{factor}=" for factor in names if not equals]
    before, comma, last = listed.rpartition(",")
    free = (level for level in FACTORS[names[0]].levels if level not in before.split(","))
    return [f"{names[0]}={before}{comma}{level}" for level in free if level.startswith(last)]


def complete_plan(incomplete: str) -> list[str]:
    """Built-in plans, for the shell's completion."""
    return [name for name in builtin_plans() if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Labels and ids of the runs in the store, newest first."""
    return run_ids(incomplete, labels=True)


def run_ids(incomplete: str, *states: str, labels: bool = False) -> list[str]:
    """Ids of the runs that begin with `incomplete`; of any of `states`, if given; with `labels` also their labels."""
    from vmtax.store.listing import listed

    named = [run for run in listed() if not states or run.state in states]
    names = [*(run.label for run in named if labels and run.label), *(run.id for run in named)]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def format_option(names: Sequence[str]) -> Any:
    """The option `--format` of a command that writes these formats."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return typer.Option(
        "--format", metavar="FORMAT", help=f"Output format: {', '.join(names)}.", autocompletion=complete
    )


def complete_profile(incomplete: str) -> list[str]:
    """Kinds of work that storage can be ranked for."""
    from vmtax.analysis.weight_profiles import PROFILES

    return [name for name in PROFILES if name.startswith(incomplete)]


def complete_needs(incomplete: str) -> list[str]:
    """Features of disks and network cards, after those that are typed already."""
    from vmtax.design.features import CARD_FEATURES, FEATURES

    before, comma, last = incomplete.rpartition(",")
    return [
        f"{before}{comma}{name}"
        for name in (*FEATURES, *CARD_FEATURES)
        if name.startswith(last) and name not in before.split(",")
    ]


def complete_feature(incomplete: str) -> list[str]:
    """Features of disks and network cards."""
    return [] if "," in incomplete else complete_needs(incomplete)


def complete_vary(incomplete: str) -> list[str]:
    """Factors, and their levels after `=`."""
    before = before_word()
    return [offer.removeprefix(before) for offer in factor_levels(before + incomplete)]


def _after_comma(incomplete: str, names: Iterable[str]) -> list[str]:
    """Completions of the last name in a comma-separated list, without the names before it."""
    before, comma, last = incomplete.rpartition(",")
    used = before.split(",")
    return [
        f"{before}{comma}{name}"
        for name in names
        if name.startswith(last) and not any(one.startswith(name) for one in used)
    ]


CLAIM_FORMATS = ("terminal", "markdown", "json")
GUEST_HELP = (
    "A guest: libvirt:NAME, proxmox:VMID or qemu:PID, or a file with what describes one: a domain's XML, a qm.conf,"
    " or QEMU's command line."
)
PLAN_HELP = f"A built-in plan ({', '.join(builtin_plans())}), or a YAML file."


def _option(metavar: str, help: str, complete: Callable[[str], Iterable[str]] | None = None) -> Any:
    return typer.Option(metavar=metavar, help=help, autocompletion=complete)


PlanName = Annotated[str, typer.Argument(metavar="PLAN", help=PLAN_HELP, autocompletion=complete_plan)]
PART = "summary"  # the part of an answer about a run that --json=PART prints
Part = Annotated[str, typer.Option("--part", hidden=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON (schema vmtax/1).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking, as in a script.")]
Emulate = Annotated[
    bool,
    typer.Option("--emulate", help="Measure even if guests must be emulated. The figures then say nothing about cost."),
]
Redact = Annotated[
    bool,
    typer.Option("--redact", help="Give machines and users other names, leave out addresses and what tools printed."),
]
FormatName = Annotated[str, format_option(list(FORMATS))]
TextName = Annotated[str, format_option([format.name for format in FORMATS.values() if format.text])]
ForProfile = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="WORK",
        help="Rank storage for this kind of work: database, fileserver, desktop, build.",
        autocompletion=complete_profile,
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        "--weights",
        metavar="METRIC=NUMBER,...",
        help="Rank storage by these metrics with these weights.",
        autocompletion=complete_weights,
    ),
]
Needs = Annotated[
    str,
    typer.Option(
        "--needs",
        metavar="FEATURE,...",
        help="Recommend a disk with these features: durable, savevm, snapshots, file, thin, pause-on-full, migration;"
        " or a network card: migratable, no-host-cpu, isolation.",
        autocompletion=complete_needs,
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Also recommend disks that lose flushed data when the host loses power."),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="FACTOR=LEVEL,...",
        help="Compare these levels of a factor; the first is the baseline.",
        autocompletion=complete_vary,
    ),
]
RunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its id, the beginning of the id, its label, or last: the newest that has a result.",
        autocompletion=complete_run,
    ),
]

PlanOfRuns = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", help="Name of a plan. Default: that of the newest run.", autocompletion=complete_plan
    ),
]
Host = Annotated[
    str | None, _option("HOST", "Host under test: local, ssh://[user@]host[:port] or lab[:NAME].", complete_host)
]
Layers = Annotated[str | None, _option("LAYERS", "Measure only these layers, such as host,vm.", complete_layers)]
Budget = Annotated[str | None, _option("TIME", "Run as many rounds as fit in this time, such as 20m or 1h30m.")]
Rounds = Annotated[int | None, _option("NUMBER", "Run exactly this number of rounds.")]
MaxWrites = Annotated[
    str | None,
    _option("SIZE", "End the run before a round that may write more than this to the disks under test, in all."),
]
Vcpus = Annotated[int | None, _option("NUMBER", "CPUs of each guest, and of the host layer.")]
Memory = Annotated[str | None, _option("SIZE", "Memory of each guest, such as 2GiB.")]
Notify = Annotated[
    str | None,
    _option(
        "COMMAND",
        "Run this command of the shell here when the run has ended; VMTAX_RUN_ID, _STATE and _RESULT say how.",
    ),
]
Qemu = Annotated[str | None, _option("PROGRAM", "QEMU to use in place of the host's own.")]
DiskDir = Annotated[
    str | None, _option("DIRECTORY", "Directory for the disks under test, on the host under test. Default: /var/tmp.")
]
DiskDevice = Annotated[
    list[str] | None,
    _option("DEVICE", "Empty block device for the disks under test; give it four times for raidz1."),
]
DiskGroup = Annotated[str | None, _option("GROUP", "LVM volume group in which the run makes volumes.")]
DiskPool = Annotated[str | None, _option("POOL", "ZFS pool in which the run makes volumes and datasets.")]
Erase = Annotated[list[str] | None, _option("DEVICE", "Allow the run to erase this device of --disk-device.")]
Card = Annotated[
    str | None, _option("CARD", "Unused network card of the host under test, for a network under test over a wire.")
]
Peer = Annotated[
    str | None, _option("HOST", "Machine at the other end of --card's wire, as --host names one.", complete_host)
]
PeerCard = Annotated[str | None, _option("CARD", "The peer's unused network card at that end.")]
DestinationHost = Annotated[
    str | None,
    _option("HOST", "Second host, as --host names one, to which guests of plan migration move.", complete_host),
]
DestinationCard = Annotated[
    str | None, _option("CARD", "The destination's unused network card, on one network with --card.")
]
InterleaveWith = Annotated[
    str | None, _option("OTHER", "Measure a second host, or with a second QEMU, in the same shuffled rounds.")
]
Guest = Annotated[
    str | None,
    _option(
        "VM",
        "Measure this VM of yours as it runs, against its host: libvirt:NAME, proxmox:VMID (never run on Proxmox VE"
        " itself), or ssh://[user@]host[:port] of the VM; plan idle, which only reads its host, also takes qemu:PID.",
    ),
]
Clone = Annotated[
    bool,
    typer.Option(
        "--clone",
        help="With --guest libvirt:NAME: measure clones of that VM, booted for each configuration, so that --vary can"
        " change its settings. The VM itself may run or be off; nothing of it is written.",
    ),
]
GuestDir = Annotated[
    str | None, _option("DIR", "With --guest: the directory in the VM for the image and disk files. Default: /var/tmp.")
]
OwnCommand = Annotated[
    str | None,
    _option(
        "COMMAND",
        "Measure this command line of yours instead of a plan: its time on each layer, in the programs of the image.",
    ),
]
Prepare = Annotated[
    str | None, _option("COMMAND", "With --command: run this before it, untimed; servers that it starts stay.")
]
Cleanup = Annotated[str | None, _option("COMMAND", "With --command: run this after it, untimed.")]
Files = Annotated[
    list[str] | None,
    _option("PATH", "A file or directory of this machine that --command needs: a copy is where it runs. Repeatable."),
]
Packages = Annotated[
    str | None, _option("NAMES", "Debian packages that --command needs, such as sysbench,redis-server.")
]
OwnMetric = Annotated[
    str | None,
    _option(
        "PATTERN",
        "With --command: the figure in its output, a regular expression with one group or a JSON path, not its time.",
    ),
]
OwnUnit = Annotated[str | None, _option("UNIT", "With --metric: the figure's unit, such as s, ms, 1/s or MB/s.")]
Better = Annotated[str | None, _option("WHICH", "With --metric: which figures are better, lower or higher.")]
SameOutput = Annotated[
    bool, typer.Option("--same-output", help="With --command: refuse results if its output differs between layers.")
]
Timeout = Annotated[
    int | None, _option("SECONDS", "With --command: seconds after which it has failed, and is killed. Default: 600.")
]
Serve = Annotated[
    str | None,
    _option("COMMAND", "With --command: a TCP server at the network peer; {address} and {port} stand for its own."),
]
PowerCut = Annotated[
    str | None,
    _option(
        "COMMAND",
        "Plan durability: cut the power of the host under test in each boot. COMMAND, which is run here, takes it"
        " away and gives it back, as a fence or a switched outlet does.",
    ),
]
BackWithin = Annotated[
    str | None, _option("TIME", "With --power-cut: how long the host may take to come back. Default: 15m.")
]
Label = Annotated[str | None, _option("NAME", "Name the run, so that commands take NAME in place of its id.")]
Fleet = Annotated[
    str | None,
    _option(
        "NAME",
        "The host is one of this fleet, and is measured once, however often this is repeated: what is finished is done"
        " at once, what was stopped goes on.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Finish a run that was stopped: the newest one, or the one that is named.")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait", help="If somebody else measures on the host, wait until that has ended: first come, first served."
    ),
]
AfterReboot = Annotated[
    bool,
    typer.Option(
        "--after-reboot",
        help="Go on, on the host that was rebooted, with a run that asked for that: the newest one, or the one that"
        " is named.",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="File for the HTML report. Default: vmtax-RUN.html."),
]
OrDemo = Annotated[
    bool,
    typer.Option("--or-demo", help="Where KVM does not work, run three short emulated rounds as a demonstration."),
]
