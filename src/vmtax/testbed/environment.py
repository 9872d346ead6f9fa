"""What an experiment needs on the host under test, set up once and undone at the end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from vmtax.core.errors import CannotDo
from vmtax.core.events import Event
from vmtax.core.records import Json
from vmtax.hypervisor import Accelerator, Credentials, Qemu, choose, probe_spec
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.cache import Image
from vmtax.image.place import Placed, place
from vmtax.machine import Machine
from vmtax.machine.guarded import GuardedMachine
from vmtax.machine.local import LocalMachine
from vmtax.meter.below import read_below
from vmtax.meter.memory import available_memory
from vmtax.meter.text import cpu_numbers
from vmtax.network import PEER_ADDRESS, Segment
from vmtax.plan.estimate import ONE_CPU, lasting
from vmtax.plan.schema import Plan
from vmtax.storage import DISK_DIRECTORY, Backing, FirstWrite, RawFile, Target
from vmtax.testbed import disks, hosts
from vmtax.testbed.disks import Disks, bound
from vmtax.workload import Link, Workload
from vmtax.workload.fio import Disk
from vmtax.workload.net import PORT

# Starts a server that serves one test, then becomes the client: constant text, the client's arguments stay arguments.
WITH_SERVER = ("sh", "-c", 'iperf3 --server --one-off --daemon --bind 127.0.0.1 && exec "$@"', "sh")
CARRIER_SPARE = 1.15  # a carrier's ext4 needs room beside the nested guest's disk
CARRIER_DISK_BYTES = 256 * 2**20
CARRIER_MEMORY_BYTES = 2**30  # of the carrier beyond its guest's: its kernel, QEMU and page cache
QEMU_MEMORY_BYTES = 128 * 2**20  # of a QEMU beyond its guest's


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """What the command line may choose about the host under test."""

    qemu: str | None = None  # another QEMU than the host's own
    target: Target = field(default_factory=Target)  # for the disks under test
    interleave_with: str | None = None  # a second host, or a second QEMU, in the same rounds

    def to_json(self) -> Json:
        target = self.target
        return {
            "qemu": self.qemu,
            "disk_directory": str(target.directory),
            "disk_devices": list(target.devices),
            "disk_group": target.group,
            "disk_pool": target.pool,
            "interleave_with": self.interleave_with,
        }

    @staticmethod
    def from_json(data: Json) -> EnvironmentOptions:
        """What a run is gone on with: never with leave to erase, for what the run made is undone by now."""
        target = Target(
            PurePosixPath(data.get("disk_directory", DISK_DIRECTORY)),
            tuple(data.get("disk_devices", ())),
            data.get("disk_group"),
            data.get("disk_pool"),
        )
        return EnvironmentOptions(data.get("qemu"), target, data.get("interleave_with"))


class CannotMeasure(CannotDo):
    """What the plan wants cannot be done here; the text says what would enable it."""


@dataclass
class Environment:
    """Everything that lasts for the whole experiment."""

    local: LocalMachine
    host: Machine
    plan: Plan
    workloads: Sequence[Workload[Any]]
    image: Image
    placed: Placed
    credentials: Credentials
    cpus: str  # the CPUs that the host layer gets, as taskset takes them
    is_root: bool  # on the host under test
    host_emulated: bool = False  # the host under test itself runs on TCG, and so all that runs on it
    qemu: Qemu | None = None  # None where no guest is asked for
    accelerator: Accelerator | None = None
    segment: Segment | None = None
    end: str | None = None  # network namespace of the host layer's own end
    peer: str | None = None  # network namespace of the other end
    disks: Disks | None = None  # of host and VM
    carrier_disk: RawFile | None = None
    target: Target = field(default_factory=Target)  # where the disks under test are to lie
    # Set when its file system is made and the nested disk filled; two QEMUs of one host share disk and event.
    carrier_ready: threading.Event = field(default_factory=threading.Event)
    first_writes: dict[str, FirstWrite] = field(default_factory=dict)  # layer or kind of disk -> how it came to be
    features: dict[str, list[Json]] = field(default_factory=dict)  # treatment -> what its disk can do
    impossible: dict[str, str] = field(default_factory=dict)  # treatments that cannot be here -> why
    notes: list[str] = field(default_factory=list)  # what is not measured, and why
    side: str = ""  # Treatment.side of what is measured in it

    @property
    def second_qemu(self) -> bool:
        """It shares all but QEMU with the environment of the plan's own side."""
        return self.side not in ("", self.host.path)

    def facts_path(self, path: str) -> str:
        """Under which the facts of its machine `path` are kept: two QEMUs of one host boot guests of the same path."""
        return f"{path} with {self.side}" if self.second_qemu else path

    def check_guards(self, *, ask: bool = True) -> None:
        """Raises MachineLost where one is gone: what is set up without it could stay, or be undone by another run.

        `ask=False`: only where that is seen from here, which takes no time from a measurement.
        """
        for machine in {id(machine): machine for machine in (self.local, self.host)}.values():
            if isinstance(machine, GuardedMachine):
                machine.check_guard(ask=ask)

    @property
    def emulated(self) -> bool:
        """Some layer is."""
        return self.host_emulated or (self.accelerator is not None and self.accelerator.name == "tcg")

    def wants(self, name: str) -> bool:
        return any(workload.name == name for workload in self.workloads)

    @property
    def disk_size(self) -> int:
        return disk_size(self.workloads)

    def userland(
        self, *, namespace: str | None = None, network: bool = False, disk: Backing | None = None
    ) -> tuple[str, ...]:
        """What enters the image on the host, on as many CPUs as a guest gets.

        `namespace`: the network namespace that it uses; `network`: it uses the host's network. Else it has none.
        """
        assert self.placed.tree is not None
        return (
            *(("ip", "netns", "exec", namespace) if namespace else ()),
            *("taskset", "-c", self.cpus),
            *enter_tree(self.placed.tree, root=self.is_root, network=network or namespace is not None),
            *(bound(disk) if disk else ()),
            "--",
        )

    def peer_server(self) -> tuple[str, ...]:
        """What serves one layer's network tests: one that was left busy by a dying guest must not serve the next."""
        assert self.peer is not None and self.placed.tree is not None
        server = ("iperf3", "--server", "--bind", PEER_ADDRESS, "--port", str(PORT))
        return ("ip", "netns", "exec", self.peer, *enter_tree(self.placed.tree, root=True, network=True), "--", *server)

    def host_link(self) -> Link | None:
        """The host layer's way to the peer; without root both ends are on a private loopback."""
        if not self.wants("net"):
            return None
        if self.segment is not None:
            return Link(self.host, self.userland(namespace=self.end), PEER_ADDRESS, PORT)
        prefix = (*self.userland(), *WITH_SERVER)
        return Link(self.host, prefix, "127.0.0.1", PORT)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where vmtax runs, and the host under test; often the same."""

    local: LocalMachine
    host: Machine
    other: Machine | None = None  # a second host under test


@contextlib.contextmanager
def connected(url: str, warn: Callable[[str], None], other: str | None = None) -> Iterator[Hosts]:
    """Reach the host under test; at exit, what is still set up there is undone, and `warn` told what could not be.

    `other`: a second host under test, whose path is its name: `host` is the first one's.
    """
    with contextlib.ExitStack() as stack:
        local = LocalMachine(other if other == "local" else "host")
        stack.callback(_close, local, warn)

        def reached(url: str, path: str) -> Machine:
            if url == "local":
                return local
            machine = hosts.connect(local, url, path)
            stack.callback(_close, machine, warn)
            return machine

        yield Hosts(local, reached(url, "host"), reached(other, other) if other else None)


def examine(
    local: LocalMachine,
    host: Machine,
    plan: Plan,
    image: Image,
    emit: Callable[[Event], None],
    options: EnvironmentOptions,
    credentials: Credentials | None = None,
) -> Environment:
    """Whether `plan` can be measured on `host`, and with what. Raises CannotMeasure and what the parts raise.

    `credentials`: the run's, where it has them already.
    """
    _check_host(host)
    _check_memory(host, plan)
    below = read_below(host)
    asked, plan = plan, lasting(plan, emulated=below["emulated_cpu"] is True)
    environment = Environment(
        local=local,
        host=host,
        plan=plan,
        workloads=plan.build_workloads(),
        image=image,
        placed=place(host, local, image, emit),
        credentials=credentials or Credentials.make(local),
        cpus=_cpus(host, plan.guest.vcpus),
        is_root=is_root(host),
        host_emulated=below["emulated_cpu"] is True,
        target=options.target,
    )
    if (note := note_of_below(below)) is not None:
        environment.notes.append(note)
    if plan != asked:
        environment.notes.append(ONE_CPU)
    choose_hypervisor(environment, options.qemu, emit)
    environment.workloads = plan.build_workloads(emulated=environment.emulated)
    return environment


def note_of_below(below: Json) -> str | None:
    """What it makes of the figures that the host is itself a VM, or emulated; None on bare metal."""
    if below["emulated_cpu"]:
        return (
            "The host under test is itself emulated (TCG), and so is all that runs on it, also a guest on KVM. "
            "The numbers show that things work, not what hardware costs."
        )
    if not below["virtualized"]:
        return None
    return (
        f"The host under test is itself a VM (under {below['hypervisor'] or 'an unknown hypervisor'}): "
        "what is measured is what nesting adds to it, not what a first VM costs on the bare machine."
    )


def _close(machine: GuardedMachine, warn: Callable[[str], None]) -> None:
    machine.close()
    for line in machine.left:
        warn(f"{machine.path}: left behind, and tried again at the next start: {line}")


def _check_host(host: Machine) -> None:
    system = host.run("uname", "-sm").split()
    if system != ["Linux", "x86_64"]:
        raise CannotMeasure(f"{host.path} is {' '.join(system)}; vmtax measures Linux on x86-64")
    if not host.succeeds("bwrap", "--version"):
        raise CannotMeasure(f"{host.path}: bubblewrap is missing (Debian: apt-get install bubblewrap)")


def _check_memory(host: Machine, plan: Plan) -> None:
    """Refused beforehand: a host out of memory would kill a guest, or worse somebody else's process."""
    most = max(memory_bytes(plan, layer) for layer in plan.layers)
    available = available_memory(host)
    if available is not None and available < most:
        raise CannotMeasure(
            f"{host.path}: {available / 2**30:.1f} GiB of memory are available, the largest guest takes "
            f"{most / 2**30:.1f} GiB; lower guest.memory in the plan, or end something there"
        )


def memory_bytes(plan: Plan, layer: str) -> int:
    """What the host gives to one layer's guests at a time."""
    carrier = CARRIER_MEMORY_BYTES if layer == "nested" else 0
    return 0 if layer == "host" else plan.guest.memory + QEMU_MEMORY_BYTES + carrier


def is_root(host: Machine) -> bool:
    return host.run("id", "-u").strip() == "0"


def _cpus(host: Machine, count: int) -> str:
    """The first `count` CPUs that we may use there, as "0,1"."""
    allowed = host.run("grep", "Cpus_allowed_list", "/proc/self/status")
    numbers = cpu_numbers(allowed.rpartition(":")[2])
    if len(numbers) < count:
        raise CannotMeasure(f"{host.path} has {len(numbers)} CPUs, the plan gives a guest {count}; lower guest.vcpus")
    return ",".join(str(number) for number in numbers[:count])


def choose_hypervisor(environment: Environment, binary: str | None, emit: Callable[[Event], None]) -> None:
    """QEMU (`binary`, or the host's own) and what its guests run on; raises QemuError, CannotMeasure."""
    plan, host = environment.plan, environment.host
    if set(plan.layers) <= {"host"}:
        return
    environment.qemu = Qemu.probe(host, binary)
    spec = probe_spec(environment.qemu, environment.placed)
    accelerator = choose(host, spec, environment.credentials, environment.local, emit)
    environment.accelerator = accelerator
    if accelerator.name == "tcg":
        environment.notes.append(
            f"The guests' CPU is emulated (TCG), because {accelerator.reason}. "
            "The numbers show that things work, not what hardware costs."
        )
        if binary is None and not environment.qemu.emulates_steadily:
            assert environment.placed.tree is not None
            own, environment.qemu = environment.qemu, Qemu.of_image(host, environment.placed.tree)
            environment.notes.append(
                f"QEMU is the image's {environment.qemu.version}, not the host's {own.version}, whose emulated guests "
                "crash too often to be measured. --qemu qemu-system-x86_64 insists on the host's."
            )
    elif "nested" in plan.layers:
        _check_nesting(host)
    if environment.qemu.doubt:
        environment.notes.append(environment.qemu.doubt)


def _check_nesting(host: Machine) -> None:
    for module in ("kvm_intel", "kvm_amd"):
        outcome = host.try_run("cat", f"/sys/module/{module}/parameters/nested")
        if outcome.ok and outcome.stdout.strip() not in ("1", "Y"):
            raise CannotMeasure(
                f"{host.path}: layer nested cannot be: {module} is loaded with nested={outcome.stdout.strip()}. "
                f"Enable it with all VMs off: modprobe -r {module} && modprobe {module} nested=1; "
                "or measure without it: --layers host,vm"
            )


def carrier_disk_bytes(size: int) -> int:
    """Of the disk that a carrier has beside the nested guest's own of `size` bytes."""
    # Whole MiB: QEMU opens no disk with O_DIRECT that ends within a block.
    return (int(size * CARRIER_SPARE) + CARRIER_DISK_BYTES) // 2**20 * 2**20


def disk_bytes(plan: Plan) -> int:
    """What is written on the host under test before the first round: every disk under test, once, and what images are
    filled from."""
    size = disk_size(plan.build_workloads())
    own = disks.written_bytes(plan.treatments()[0], size)
    return own + (carrier_disk_bytes(size) if size and "nested" in plan.layers else 0)


def disk_size(workloads: Sequence[Workload[Any]]) -> int:
    """Of the disk under test, in bytes, the same on every layer; 0 where there is none."""
    return max((workload.parameters.size_bytes for workload in workloads if isinstance(workload, Disk)), default=0)
