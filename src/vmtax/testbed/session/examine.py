"""Check whether a plan can be measured on a host, and with what. Nothing is made there except the image's copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vmtax.core.records import Json
from vmtax.hypervisor import Accelerator, Qemu, choose, probe_spec
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.place import Placed, place
from vmtax.lab.home import Lab
from vmtax.machine import Machine, rights, tools
from vmtax.machine.answer import whole_of
from vmtax.machine.guarded import GuardedMachine
from vmtax.meter.below import read_below
from vmtax.network.wire import refuse_cards
from vmtax.plan.guests import guests_at_once, largest
from vmtax.plan.schema import Plan
from vmtax.storage import Backing, Target
from vmtax.testbed.host import cpus, disks, needs
from vmtax.testbed.host.cpus import ONE, CpuTopology, Equal, Sets, bound
from vmtax.testbed.host.hosts import lab_of
from vmtax.testbed.session.cloning import Cloning
from vmtax.testbed.session.room import refuse_few_cpus, refuse_little_memory, refuse_small
from vmtax.testbed.session.session import CannotMeasure, Session, TestbedOptions, There, Wire
from vmtax.testbed.session.watching import Watching
from vmtax.testbed.session.ways import Inside
from vmtax.workload import Workload
from vmtax.workload.build import Build
from vmtax.workload.smb import Smb
from vmtax.workload.wakeup import Wakeup

REAL_TIME, REAL_TIME_BIT = "CAP_SYS_NICE", 23  # the capability that wake-up latency requires on a host, and its number


@dataclass(frozen=True, slots=True)
class Platform:
    """QEMU and the accelerator for a host's guests."""

    qemu: Qemu
    accelerator: Accelerator
    notes: tuple[str, ...] = ()  # what a reader must know about them

    @property
    def emulates(self) -> bool:
        return self.accelerator.name == "tcg"


@dataclass(frozen=True)
class Examined:
    """A host on which the plan can be measured, before anything is set up there."""

    session: Session
    host: Machine
    plan: Plan  # the plan, without what cannot be measured there
    workloads: Sequence[Workload[Any]]
    placed: Placed
    topology: CpuTopology  # all CPUs that we may use there
    unbound: str  # why memory is not bound to the node of the CPUs, for any guest; empty: it is, if there are several
    is_root: bool  # we are root on the host under test
    why_warm: str  # why its page cache is not dropped; empty if it is
    host_emulated: bool  # the host under test itself runs on TCG, and so does everything on it
    target: Target  # where the disks under test will be
    platform: Platform | None  # None if the plan has no guests
    notes: tuple[str, ...] = ()  # what is not measured, and why
    side: str = ""  # Treatment.side of the treatments measured on it
    destination: There | None = None  # where migrated guests move to; None: to another QEMU of their host
    existing: Examined | None = None  # a VM that is measured as it runs, examined like a host
    entered: Inside | None = None  # how, if this is that VM
    cloning: Cloning | None = None  # of the VM whose clones are measured
    watching: Watching | None = None  # the VM that is only watched from here

    @property
    def lab(self) -> Lab | None:
        """The lab that this host is; None if it is no lab."""
        return lab_of(self.plan.host if self.host.path == "host" else self.host.path)

    @property
    def card(self) -> str | None:
        """The network card of the host under test that the user named."""
        if self.session.wired:
            return self.session.wired.wire.card
        return self.destination.wanted.card if self.destination else None

    @property
    def cpus(self) -> str:
        """The CPUs that one guest, or one set of processes on the host layer, gets; as taskset takes them."""
        return self.topology.equal(self.plan.guest.vcpus).text

    def kept(self, sets: Sets = ONE) -> tuple[str, ...]:
        """Command prefix for sets of processes on the host layer: the CPUs that as many guests get together."""
        return bound(self.cpus_of_all(sets), self.node(self.topology.equal(sets.count * self.plan.guest.vcpus)))

    def cpus_of_all(self, sets: Sets) -> str:
        """The CPUs of the host for all of them, as taskset takes them. Fewer are some of those that are chosen if each
        has its own, so that how many share one is all that differs.
        """
        each = self.plan.guest.vcpus
        chosen = self.topology.equal(sets.count * each)
        return ",".join(map(str, chosen.cpus[: sets.cpus(each)]))

    def node(self, chosen: Equal) -> int | None:
        """The NUMA node to which memory is bound beside these CPUs; None: to none."""
        return None if self.unbound else chosen.node

    def cpus_of_one(self, number: int, sets: int) -> str:
        """The CPUs of the container of that number, of `sets` that work at once: as many as one guest gets."""
        each = self.plan.guest.vcpus
        every = self.topology.equal(sets * each).cpus
        if sets == 1 or len(every) < sets * each:
            return self.cpus
        return ",".join(map(str, every[(number - 1) * each : number * each]))

    @property
    def is_plugged(self) -> bool:
        """Whether it is a VM that gets a disk of its host while it is measured."""
        return self.entered is not None and self.entered.plug is not None

    @property
    def second_qemu(self) -> bool:
        """Whether this side differs from the plan's own side only in its QEMU."""
        return self.side not in ("", self.host.path)

    def facts_path(self, path: str) -> str:
        """The key under which facts of its machine `path` are stored: guests of two QEMUs of one host have the same
        path.
        """
        return f"{path} with {self.side}" if self.second_qemu else path

    def check_guards(self, *, ask: bool = True) -> None:
        """Raises MachineLost if a guard is gone: without it, the set-up could stay behind, or another run could remove
        it.

        `ask=False`: check only what is visible from here, so that no measurement is disturbed.
        """
        wired = self.session.wired
        there = self.destination
        far = (*([wired.peer] if wired else []), *([there.machine] if there else []))
        machines = (self.session.local, self.host, *far, *([self.existing.host] if self.existing else []))
        for machine in {id(machine): machine for machine in machines}.values():
            if isinstance(machine, GuardedMachine):
                machine.check_guard(ask=ask)

    @property
    def emulated(self) -> bool:
        """Whether some layer is emulated."""
        return self.host_emulated or bool(self.why_emulated)

    @property
    def why_emulated(self) -> str:
        """Why the CPU of a VM on it is emulated; "" if none is."""
        if self.emulates_guests:
            return self.guests.accelerator.reason
        if self.existing is not None and self.existing.host_emulated and not self.host_emulated:
            return "the CPU of the existing VM is emulated"
        if self.watching is not None and self.watching.is_emulated:
            return self.watching.why_emulated
        if self.cloning is not None and self.cloning.is_emulated:
            return self.cloning.why_emulated
        return ""

    @property
    def emulates_guests(self) -> bool:
        return self.platform is not None and self.platform.emulates

    @property
    def guests(self) -> Platform:
        """QEMU and the accelerator for its guests; call only if the plan has guests."""
        assert self.platform is not None, "the plan has guests"
        return self.platform

    @property
    def tree(self) -> str:
        """The image's files on the host."""
        assert self.placed.tree is not None, "an image on a host has its tree"
        return self.placed.tree

    def wants(self, name: str) -> bool:
        return any(workload.name == name for workload in self.workloads)

    @property
    def networked(self) -> bool:
        """Whether any of its workloads needs a network peer."""
        return any(workload.networked for workload in self.workloads)

    @property
    def fills_disks(self) -> bool:
        """Whether any of its workloads needs a disk that was written in full."""
        return any(workload.filled_bytes for workload in self.workloads)

    @property
    def has_disks(self) -> bool:
        """Whether any of its workloads needs a disk."""
        return self.disk_size > 0

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Those of root that workloads need on the host; without root, only the one that a user may be given."""
        real_time = (REAL_TIME,) if self.wants(Wakeup.name) else ()
        return (*real_time, *(name for one in self.workloads if self.is_root for name in one.capabilities))

    @property
    def disk_size(self) -> int:
        return needs.disk_size(self.workloads)

    def of_plan(self, plan: Plan) -> Examined:
        """The same host, on which another plan is to be measured that takes no more of it."""
        return replace(self, plan=plan, workloads=plan.build_workloads(emulated=self.emulated))

    def userland(
        self,
        *,
        namespace: str | None = None,
        network: bool = False,
        disk: Backing | None = None,
        sets: Sets = ONE,
    ) -> tuple[str, ...]:
        """The command that enters the image on the host, on the CPUs of `sets`.

        `namespace`: the network namespace to use; `network`: use the host's network. By default there is no network.
        """
        return (
            *(("ip", "netns", "exec", namespace) if namespace else ()),
            *self.kept(sets),
            *enter_tree(
                self.tree,
                root=self.is_root,
                network=network or namespace is not None,
                capabilities=self.capabilities,
                bubblewrap=self.placed.bubblewrap,
            ),
            *(disks.bound(disk) if disk else ()),
            "--",
        )


def check(host: Machine, plan: Plan, *, leaves: bool = False) -> None:
    """Raises CannotMeasure if `plan` cannot be measured on `host`, as far as can be checked without an image there.

    `leaves`: migrated guests move between this host and another one
    """
    _check_host(host)
    if any(choice.name == Build.name for choice in plan.workloads):
        _check_build(host, plan)
    needs.refuse_small_for_databases(plan)
    needs.refuse_small_for_arrays(plan)
    if "host" in plan.layers and any(choice.name == Wakeup.name for choice in plan.workloads):
        _check_real_time(host)
    refuse_little_memory(host, plan, leaves=leaves)
    refuse_small(host, cpus.read(host), plan)
    _check_network(host, plan)


def check_peer(host: Machine, peer: Machine, plan: Plan, wire: Wire) -> None:
    """Raises CannotMeasure and CardInUse if `plan` cannot be measured over that wire, as far as can be checked now."""
    if not any(workload.networked for workload in plan.build_workloads()):
        raise CannotMeasure(f"--peer {wire.peer}: the plan {plan.name} has no workload that uses the network")
    for machine in (host, peer):
        if not is_root(machine):
            raise CannotMeasure(f"{machine.path}: a wire needs root there: its card goes to a namespace of the run's")
        _check_tools(machine, tools.CARDS)
        _refuse_namespaces(machine)
    _check_share(peer, plan)
    refuse_cards(host, wire.card, peer, wire.peer_card)
    _check_host(peer)


def _check_share(peer: Machine, plan: Plan) -> None:
    """Raises CannotMeasure if what a guest writes to a share at the peer cannot be bounded."""
    if any(choice.name == Smb.name for choice in plan.workloads):
        _check_tools(peer, tools.SHARE)


def _refuse_namespaces(machine: Machine) -> None:
    """Raises CannotMeasure if we may not make taps and named network namespaces there; the latter are mounts."""
    if refused := rights.why_not(machine, "tun", "mount"):
        raise CannotMeasure(f"{machine.path}: a bridge in a network namespace: {refused}")


def _check_network(host: Machine, plan: Plan) -> None:
    networked = [workload for workload in plan.build_workloads() if workload.networked]
    if not networked:
        return
    if is_root(host):
        _check_tools(host, tools.NETWORK)
        _refuse_namespaces(host)
        _check_share(host, plan)
    elif (needy := next((one for one in networked if one.takes_bridge), None)) is not None:
        raise CannotMeasure(
            f"{host.path}: {needy.takes_bridge} needs a bridge and a tap, which take root there: run as root, or leave"
            " it out of the plan"
        )


def examine(
    session: Session,
    host: Machine,
    plan: Plan,
    options: TestbedOptions,
    side: str = "",
    *,
    placed: Placed | None = None,
) -> Examined:
    """Check whether `plan` can be measured on `host`, and with what. Raises CannotMeasure, and what its parts raise.

    placed: the image there; None: it is placed where hosts keep it
    """
    below = read_below(host)
    emulated = below["emulated_cpu"] is True
    placed = placed or place(host, session.local, session.image, session.emit)
    topology = cpus.read(host)
    refuse_small(host, topology, plan)
    most = topology.equal(guests_at_once(plan) * largest(plan).guest.vcpus)
    platform = choose_platform(session, host, plan, placed, options.qemu)
    some_emulated = emulated or (platform is not None and platform.emulates)
    if not some_emulated:
        refuse_few_cpus(host, plan)
    workloads = plan.build_workloads(emulated=some_emulated)
    note = note_of_below(below)
    return Examined(
        session=session,
        host=host,
        plan=plan,
        workloads=workloads,
        placed=placed,
        is_root=is_root(host),
        why_warm=why_warm(host),
        host_emulated=emulated,
        target=options.target,
        platform=platform,
        notes=(
            *((note,) if note else ()),
            *_decided(workloads, emulated=some_emulated),
            *(platform.notes if platform else ()),
        ),
        side=side,
        topology=topology,
        unbound=cpus.why_unbound(host, topology, most, needs.most_memory(plan)),
    )


def _decided(workloads: Sequence[Workload[Any]], *, emulated: bool) -> Iterator[str]:
    """Notes about parameters that the plan leaves open: the values chosen here, and why."""
    for one in workloads:
        for name, value in one.settled().items():
            if getattr(one.parameters, name) != value:
                yield f"{one.title}: {name} {value} (default when {'emulated' if emulated else 'not emulated'})."


def note_of_below(below: Json) -> str | None:
    """How figures must be read if the host is itself a VM, or emulated; None on bare metal."""
    if below["emulated_cpu"]:
        return (
            "The host under test is itself emulated (TCG), and so is all that runs on it, also a guest on KVM. "
            "The numbers show that things work, not what hardware costs."
        )
    if not below["virtualized"]:
        return None
    return (
        f"The host under test is itself a VM (under {below['hypervisor'] or 'an unknown hypervisor'}): "
        "what is measured is what nesting costs, not what a first VM costs on the bare machine."
    )


def is_root(host: Machine) -> bool:
    """Whether we are root there, which says nothing about what we may do."""
    return host.run("id", "-u").strip() == "0"


def enters(tree: str = "/", *, root: bool) -> tuple[str, ...]:
    """A command that enters an image, or the machine's own files, as the run does, and succeeds if it may."""
    return (*enter_tree(tree, root=root), "--", "true")


def refuse_nameless(local: Machine) -> None:
    """Raises CannotMeasure if ssh, which reaches guests, refuses the user that runs this."""
    if refused := rights.why_not(local, "ssh"):
        raise CannotMeasure(f"{local.path}: {refused}")


def why_warm(host: Machine) -> str:
    """Why the host's caches stay warm; empty if the run may drop them."""
    if not is_root(host):
        return "dropping them needs root there"
    return rights.why_not(host, "caches")


def choose_platform(session: Session, host: Machine, plan: Plan, placed: Placed, binary: str | None) -> Platform | None:
    """QEMU (`binary`, or the host's own) and the accelerator for guests; None if the plan has no guests.

    Raises QemuError, CannotMeasure.
    """
    if not plan.has_guests:
        return None
    qemu, notes = Qemu.probe(host, binary), []
    accelerator = choose(host, probe_spec(qemu, placed), session.credentials, session.local, session.emit)
    if accelerator.name == "tcg":
        notes.append(
            f"The guests' CPU is emulated (TCG), because {accelerator.reason}. "
            "The numbers show that things work, not what hardware costs."
        )
        if binary is None and not qemu.emulates_steadily:
            assert placed.tree is not None
            own, qemu = qemu, Qemu.of_image(host, placed.tree)
            notes.append(
                f"QEMU is the image's {qemu.version}, not the host's {own.version}, whose emulated guests "
                "crash too often to be measured. --qemu qemu-system-x86_64 insists on the host's."
            )
    elif "nested" in plan.layers:
        _check_nesting(host)
    if qemu.doubt:
        notes.append(qemu.doubt)
    return Platform(qemu, accelerator, tuple(notes))


def check_system(machine: Machine) -> None:
    """Raises CannotMeasure unless programs of the image run there."""
    system = machine.run("uname", "-sm").split()
    if system != ["Linux", "x86_64"]:
        raise CannotMeasure(f"{machine.path} is {' '.join(system)}; vmtax measures Linux on x86-64")


def _check_host(host: Machine) -> None:
    check_system(host)
    _check_tools(host, tools.HOST)
    if refused := rights.why_not(host, "programs", command=enters(root=is_root(host))):
        raise CannotMeasure(f"{host.path}: {refused}")


def _check_tools(machine: Machine, *uses: str) -> None:
    if why := tools.why_not(machine, tools.of(*uses)):
        raise CannotMeasure(f"{machine.path}: {why}")


def _check_build(host: Machine, plan: Plan) -> None:
    """Raises BadInput if guests are too small to build a kernel, and CannotMeasure."""
    needs.refuse_small(plan)
    if "host" in plan.layers and not is_root(host):
        raise CannotMeasure(
            f"{host.path}: a kernel build on the host needs root, to mount what it compiles; measure as root, or"
            " without the host: --layers vm"
        )
    if "host" in plan.layers:
        _check_tools(host, tools.BUILD)
        if refused := rights.why_not(host, "mount", "loop"):
            raise CannotMeasure(f"{host.path}: a kernel build on the host: {refused}; or without the host: --layers vm")


def _check_real_time(host: Machine) -> None:
    """Raises CannotMeasure if a workload on the host may not use SCHED_FIFO, which it may use in every guest."""
    said = host.run("grep", "CapEff", "/proc/self/status")
    held = whole_of(host, "CapEff of /proc/self/status", said.rpartition(":")[2], base=16, most=2**64)
    if not held >> REAL_TIME_BIT & 1:
        raise CannotMeasure(
            f"{host.path}: wake-up latency on the host takes {REAL_TIME}, which SCHED_FIFO needs; measure as root, or"
            " without the host: --layers vm"
        )


def _check_nesting(host: Machine) -> None:
    for module in ("kvm_intel", "kvm_amd"):
        outcome = host.try_run("cat", f"/sys/module/{module}/parameters/nested")
        if outcome.ok and outcome.stdout.strip() not in ("1", "Y"):
            raise CannotMeasure(
                f"{host.path}: layer nested cannot be: {module} is loaded with nested={outcome.stdout.strip()}. "
                f"Enable it with all VMs off: modprobe -r {module} && modprobe {module} nested=1; "
                "or measure without it: --layers host,vm"
            )
