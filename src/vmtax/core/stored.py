"""What the JSON of a stored run has: its plan, its options, and the facts about its machines.

A run that is written, loaded or imported is checked against these models. Whatever a report or a resumed run reads by
its key has a field here; a key that is unknown, as of a later version, is kept. Nothing is converted: what is read
later is the JSON itself. So the types are strict.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Interval, Len, Predicate
from pydantic import BaseModel, ConfigDict, model_validator

MOST_ROUNDS = 10_000  # of a plan


def _is_argument(text: str) -> bool:
    """Whether a command can be given this word."""
    return "\0" not in text


Argument = Annotated[str, Len(0, 10_000), Predicate(_is_argument)]
Round = Annotated[int, Interval(ge=1, le=MOST_ROUNDS)]
Fraction = Annotated[float, Interval(gt=0, lt=1)]
Bytes = Annotated[int, Interval(ge=0, lt=2**63)]


class StoredJson(BaseModel):
    """A JSON object of which some keys are known."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)


# Plans


class RunRounds(StoredJson):
    """How often each configuration runs."""

    min: Round
    max: Round

    @model_validator(mode="after")
    def _ordered(self) -> RunRounds:
        if self.max < self.min:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class RunDecide(StoredJson):
    """The question of a plan."""

    worse_than: Fraction


class StoredCombination(StoredJson):
    """An entry of a plan's own list of treatments, as far as reports read it."""

    levels: dict[str, list[str]]


class StoredPlan(StoredJson):
    """A plan, as far as reports read it; `vmtax.plan` knows all of it, and which of it fits together."""

    name: str
    workloads: list[str | dict[str, Any]] = []
    factors: dict[str, list[str]] = {}
    combinations: list[StoredCombination] | None = None
    primary: list[str]
    rounds: RunRounds
    precision: Fraction | None
    decide: RunDecide | None = None
    same_within: Annotated[float, Interval(ge=0, lt=1)] = 0.02
    iterations: Annotated[int, Interval(ge=1, le=1_000_000)] | Literal["auto"] = 1
    seed: Annotated[int, Interval(ge=0, lt=2**63)] | None = None


# Facts


class FirstWriteFacts(StoredJson):
    """How a disk under test was first written."""

    allocation: str
    size: Bytes
    when: str


class FeatureFacts(StoredJson):
    """Whether a disk has a feature."""

    name: str
    state: Literal["yes", "no", "not tried"]
    how: str
    words: str = ""


class DiskFacts(StoredJson):
    """The disk under the directory of the disks under test."""

    directory: str | None = None
    device: str | None = None
    file_system: str | None = None
    logged: bool | None = None
    first_write: dict[str, FirstWriteFacts] | None = None
    features: dict[str, list[FeatureFacts]] | None = None


class ImageFacts(StoredJson):
    """The root image."""

    identity: str | None = None


class PackFacts(StoredJson):
    """A pack that was used."""

    version: str | None = None
    digest: str | None = None


class QemuFacts(StoredJson):
    """A QEMU."""

    version: str | None = None
    text: str | None = None


class AcceleratorFacts(StoredJson):
    """What runs the guests of a host."""

    name: str | None = None
    reason: str | None = None


class BootFacts(StoredJson):
    """A boot of the host under test that measured something."""

    round: Round
    level: str
    over: bool
    boot_id: str | None
    kernel_command_line: str | None
    mitigations: dict[str, str | None] | None = None


class MachineFacts(StoredJson):
    """Facts about a machine; `vmtax.meter` knows all of them. A fact that could not be read is None."""

    cpu_model: str | None = None
    cpus_online: int | None = None
    cpus_allowed: str | None = None
    memory_bytes: Bytes | None = None
    os: str | None = None
    hostname: str | None = None
    machine_id: str | None = None
    microcode: str | None = None
    boot_id: str | None = None
    kernel_release: str | None = None
    kernel_version: str | None = None
    kernel_command_line: str | None = None
    hypervisor: str | None = None
    virtualized: bool | None = None
    emulated_cpu: bool | None = None
    measured_as_root: bool | None = None
    disk: DiskFacts | None = None
    image: ImageFacts | None = None
    qemu: QemuFacts | None = None
    accelerator: AcceleratorFacts | None = None
    kernel_pack: PackFacts | None = None
    postgresql_pack: PackFacts | None = None
    boots: list[BootFacts] | None = None


# Options


class WireOptions(StoredJson):
    """The cards of a wire."""

    card: Argument
    peer: Argument
    peer_card: Argument


class DestinationOptions(StoredJson):
    """A second host to which guests are migrated."""

    host: Argument
    card: Argument
    far_card: Argument


class PowerCutOptions(StoredJson):
    """The command that cuts the power of the host under test."""

    command: Annotated[list[Argument], Len(1, 1000)]
    back_within: Annotated[float, Interval(gt=0, lt=1e9)]


class ExistingOptions(StoredJson):
    """A VM of the user's that was measured."""

    name: Argument
    directory: Argument
    clone: bool = False  # not as it ran, but clones of it
    watched: bool = False  # from its host alone


class StoredOptions(StoredJson):
    """What the command line added to the plan; `TestbedOptions` of a resumed run are made of it."""

    qemu: Argument | None = None
    disk_directory: Argument | None = None  # None: the default
    disk_devices: list[Argument] = []
    disk_group: Argument | None = None
    disk_pool: Argument | None = None
    interleave_with: Argument | None = None
    wire: WireOptions | None = None
    power_cut: PowerCutOptions | None = None
    destination: DestinationOptions | None = None
    existing: ExistingOptions | None = None
    emulate: bool = False
    demonstration: bool = False
    imported: bool = False
