"""What the command line asks of a run: its options, in groups."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.cli.app import AsJson, Emulate, Vary, Yes
from vmtax.cli.options import (
    AfterReboot,
    BackWithin,
    Better,
    Budget,
    Card,
    Cleanup,
    Clone,
    DestinationCard,
    DestinationHost,
    DiskDevice,
    DiskDir,
    DiskGroup,
    DiskPool,
    Erase,
    Files,
    Fleet,
    Guest,
    GuestDir,
    Host,
    InterleaveWith,
    Label,
    Layers,
    MaxWrites,
    Memory,
    Notify,
    OrDemo,
    OwnCommand,
    OwnMetric,
    OwnUnit,
    Packages,
    Peer,
    PeerCard,
    PowerCut,
    Prepare,
    Qemu,
    Report,
    Resume,
    Rounds,
    SameOutput,
    Serve,
    Timeout,
    Vcpus,
    Wait,
)


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """Values that replace those of the plan."""

    host: Host = None
    layers: Layers = None
    budget: Budget = None
    rounds: Rounds = None
    vary: Vary = None
    vcpus: Vcpus = None
    memory: Memory = None
    max_writes: MaxWrites = None


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """A program of the user's own, which is measured instead of a plan."""

    command: OwnCommand = None
    prepare: Prepare = None
    cleanup: Cleanup = None
    files: Files = None
    packages: Packages = None
    metric: OwnMetric = None
    unit: OwnUnit = None
    better: Better = None
    same_output: SameOutput = False
    serve: Serve = None
    timeout: Timeout = None


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Where the disks under test will be."""

    disk_dir: DiskDir = None
    disk_device: DiskDevice = None
    disk_group: DiskGroup = None
    disk_pool: DiskPool = None
    erase: Erase = None


@dataclass(frozen=True, slots=True)
class CardOptions:
    """Network cards: of a wire to a peer, or on the way to a second host."""

    card: Card = None
    peer: Peer = None
    peer_card: PeerCard = None
    destination: DestinationHost = None
    destination_card: DestinationCard = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The QEMU under test, and what is measured in the same rounds."""

    qemu: Qemu = None
    interleave_with: InterleaveWith = None


@dataclass(frozen=True, slots=True)
class GuestOptions:
    """A VM of the user's that is measured as it runs, or clones of it."""

    guest: Guest = None
    clone: Clone = False
    guest_dir: GuestDir = None


@dataclass(frozen=True, slots=True)
class PowerOptions:
    """How the power of the host under test is cut."""

    power_cut: PowerCut = None
    back_within: BackWithin = None


@dataclass(frozen=True, slots=True)
class WithoutKvm:
    """What is done where no guest boots with KVM."""

    emulate: Emulate = False
    or_demo: OrDemo = False


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

    resume: Resume = False
    after_reboot: AfterReboot = False


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What the results are called, and where they are written."""

    label: Label = None
    output: Report = None
    json: AsJson = False
    notify: Notify = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All of them."""

    measured: Measured = Measured()
    continued: Continued = Continued()
    results: AnswerOptions = AnswerOptions()
    yes: Yes = False
    wait: Wait = False
    fleet: Fleet = None
