"""What the command line asks of a run: its options, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from vmtax.cli import options


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """Values that replace those of the plan."""

    host: options.Host = None
    layers: options.Layers = None
    budget: options.Budget = None
    rounds: options.Rounds = None
    vary: options.Vary = None
    vcpus: options.Vcpus = None
    memory: options.Memory = None
    max_writes: options.MaxWrites = None


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """A program of the user's own, which is measured instead of a plan."""

    command: options.OwnCommand = None
    prepare: options.Prepare = None
    cleanup: options.Cleanup = None
    files: options.Files = None
    packages: options.Packages = None
    metric: options.OwnMetric = None
    unit: options.OwnUnit = None
    better: options.Better = None
    same_output: options.SameOutput = False
    serve: options.Serve = None
    timeout: options.Timeout = None


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Where the disks under test will be."""

    disk_dir: options.DiskDir = None
    disk_device: options.DiskDevice = None
    disk_group: options.DiskGroup = None
    disk_pool: options.DiskPool = None
    erase: options.Erase = None


@dataclass(frozen=True, slots=True)
class CardOptions:
    """Network cards: of a wire to a peer, or on the way to a second host."""

    card: options.Card = None
    peer: options.Peer = None
    peer_card: options.PeerCard = None
    destination: options.DestinationHost = None
    destination_card: options.DestinationCard = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The QEMU under test, and what is measured in the same rounds."""

    qemu: options.Qemu = None
    interleave_with: options.InterleaveWith = None


@dataclass(frozen=True, slots=True)
class GuestOptions:
    """A VM of the user's that is measured as it runs, or clones of it."""

    guest: options.Guest = None
    clone: options.Clone = False
    guest_dir: options.GuestDir = None


@dataclass(frozen=True, slots=True)
class PowerOptions:
    """How the power of the host under test is cut."""

    power_cut: options.PowerCut = None
    back_within: options.BackWithin = None


@dataclass(frozen=True, slots=True)
class WithoutKvm:
    """What is done where no guest boots with KVM."""

    emulate: options.Emulate = False
    or_demo: options.OrDemo = False


@dataclass(frozen=True, slots=True)
class Measured:
    """All that changes what is measured, how and where."""

    changes: PlanChanges = PlanChanges()
    program: ProgramOptions = ProgramOptions()
    disks: DiskOptions = DiskOptions()
    cards: CardOptions = CardOptions()
    versions: Versions = Versions()
    existing: GuestOptions = GuestOptions()
    power: PowerOptions = PowerOptions()
    without_kvm: WithoutKvm = WithoutKvm()


@dataclass(frozen=True, slots=True)
class Continued:
    """Which stopped run goes on, if any."""

    resume: options.Resume = False
    after_reboot: options.AfterReboot = False


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What the results are called, and where they are written."""

    label: options.Label = None
    output: options.Report = None
    json: options.AsJson = False
    notify: options.Notify = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All of them."""

    measured: Measured = Measured()
    continued: Continued = Continued()
    results: AnswerOptions = AnswerOptions()
    yes: options.Yes = False
    wait: options.Wait = False
    fleet: options.Fleet = None


DEFAULT_BUDGET = "20m"


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """How a machine is calibrated."""

    host: options.Host = None
    budget: options.Budget = DEFAULT_BUDGET
    qemu: options.Qemu = None
    disk_dir: options.DiskDir = None
    show: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Show this earlier calibration and measure nothing.",
            autocompletion=options.complete_run,
        ),
    ] = ""
    emulate: options.Emulate = False
    yes: options.Yes = False
    json: options.AsJson = False
