"""Start a lab, from its disks or from a saved state, and leave it to its guard."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath

from vmtax.core.events import Event, Step
from vmtax.hypervisor import (
    Accelerator,
    BootFailed,
    BootPatience,
    Credentials,
    GuestSpec,
    Nic,
    Qemu,
    Tap,
    boot,
    choose,
    probe_spec,
)
from vmtax.hypervisor.credentials import KEY, KNOWN_HOSTS
from vmtax.image import build, cache, zfs
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.image.place import place
from vmtax.lab.disks import keep, make_disks
from vmtax.lab.home import (
    Lab,
    LabError,
    NoSuchLab,
    Record,
    Software,
    Up,
    check_unused,
    held,
    lab,
    read_record,
    trouble,
    write,
)
from vmtax.lab.memory import promise_memory
from vmtax.lab.monitor import go_on
from vmtax.lab.spec import CONSOLE, DEFAULT_NAME, PEER_ADDRESS, Size, disk_files, lab_spec, own_address, with_addresses
from vmtax.lab.standing import why_standing
from vmtax.machine import CommandFailed, Machine, MachineLost
from vmtax.machine.local import LocalMachine
from vmtax.network import Segment

Emit = Callable[[Event], None]

WHAT = "starting the lab"
PATIENCE = BootPatience(ready=180.0)
SETTLE_SECONDS = 90.0
ATTEMPTS = 2
# Removes a record of the lab unless a later start has written it. Constant text.
FORGET = ("sh", "-c", '! grep -qF "$1" "$2" 2> /dev/null || rm "$2"', "sh")
# A saved lab stood still meanwhile, perhaps under another name. A single command, because the start waits for it.
COME_TO = ("sh", "-c", 'date -u -s "$1" && hostname "$2"', "sh")
# The image gives every lab the same address. Constant text, the lab's own address is an argument.
OWN_ADDRESS = ("sh", "-c", 'ip address flush dev eth1 scope global && ip address add "$1" dev eth1', "sh")
LOG = "/run/vmtax/lab.log"  # in the lab: messages of its devices' initialization
TUN = "/dev/net/tun"
SETTLED = ("sh", "-c", "until test -e /run/vmtax/settled; do sleep 0.1; done")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for; None: unchanged, or the default."""

    vcpus: int | None = None
    memory_bytes: int | None = None
    spares: int | None = None
    spare_bytes: int | None = None
    nvme: bool | None = None
    kernel_arguments: tuple[str, ...] = ()  # for this start only, in addition to those that every lab has
    log_writes: bool = False  # for this start only: writes to its spare disks
    link: str = ""  # a lab that is up, whose network is shared in this start
    smt: bool | None = None

    def on(self, size: Size) -> Size:
        wanted = {field.name: getattr(self, field.name) for field in fields(size) if hasattr(self, field.name)}
        return replace(size, **{name: value for name, value in wanted.items() if value is not None})


@dataclass
class _Start:
    """What one start has examined and made so far."""

    lab: Lab
    local: LocalMachine
    emit: Emit
    size: Size
    image: Image
    base: GuestSpec  # its hypervisor, kernel and image
    accelerator: Accelerator
    credentials: Credentials
    saved: Path | None
    pack: Pack | None
    began: float  # monotonic clock
    arguments: tuple[str, ...] = ()  # kernel arguments in addition to those that every lab has
    logs_writes: bool = False
    link: str = ""
    segment: Segment | None = None
    namespace: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def software(self) -> Software:
        zfs_version, build_of_it = (self.pack.version, self.pack.digest) if self.pack else (None, None)
        version, image = self.base.hypervisor.version, self.image
        return Software(
            *(version, image.identity, image.kernel, zfs_version, self.accelerator.name),
            zfs_build=build_of_it,
            additional_cpu=self.accelerator.name == "tcg",
        )


def start(one: Lab, wish: Wish, emit: Emit, source: Lab | None = None) -> Up:
    """Bring up a lab; if it does not exist, it is created, and if QEMU has paused it, it is resumed.

    `source`: start from the saved state of that lab, including its disks

    Raises LabError, and exceptions of image, QEMU and machines. If it does not come up, the set-up is undone.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as locks:
        locks.enter_context(held(one))
        if source is not None and source.name != one.name:
            source.must_exist()
            locks.enter_context(held(source, shared=True))
        running = one.up()
        if running is not None:
            if go_on(one, running):
                return running
            other = "" if one.name != DEFAULT_NAME else ", or give another lab another name"
            raise LabError(f"lab {one.name} is up already: vmtax lab ssh {one.name}{other}")
        if source and source.name != one.name and one.exists:
            raise LabError(f"lab {one.name} has disks of its own: --from {source.name} takes a name that is free")
        if wish.link:
            _linked(one, wish.link)
        record = _saved_record(source) if source else (one.record() if one.exists else None)
        size = _size(one, wish, record, source)
        check_unused(one)
        local = LocalMachine()
        if os.geteuid() == 0:
            # Old files in /tmp are deleted periodically, and a lab may live long
            local.scratch_parent = PurePosixPath("/run")
        with contextlib.ExitStack() as stack:
            stack.callback(local.close)
            # First, so it is undone last: `lab stop` waits for it
            local.undo_later(*FORGET, local.token, str(one.up_file))
            try:
                promise_memory(local, size)
                state = _prepared(one, local, emit, size, source, record, began)
                up = _start(
                    replace(state, arguments=wish.kernel_arguments, logs_writes=wish.log_writes, link=wish.link)
                )
            except OSError as error:
                raise trouble(error, one.directory) from error
            local.leave_to(up.pid, (str(one.log), str(one.directory / CONSOLE)))
            stack.pop_all()
        one.logs_again.unlink(missing_ok=True)  # of a reboot, perhaps one that was killed
    return up


def _size(one: Lab, wish: Wish, record: Record | None, source: Lab | None) -> Size:
    """The size that it will have. Raises LabError if it does not fit the existing disks or memory."""
    size = wish.on(record.size if record else Size())
    if source and wish.kernel_arguments:
        raise LabError(f"a saved lab has booted already: leave out --kernel-arguments with --from {source.name}")
    if source and wish.link:
        raise LabError(f"a saved lab has its cards' addresses: leave out --link with --from {source.name}")
    if source and wish.log_writes:
        raise LabError(f"a log of writes begins with the lab: leave out --log-writes with --from {source.name}")
    if wish.log_writes and not size.spares:
        raise LabError(f"lab {one.name} has no spare disks, whose writes --log-writes would log")
    if source and record and size != record.size:
        raise LabError(
            "a saved lab has its memory, CPUs and disks: leave out --memory, --vcpus, --smt, --spares, --spare-size"
            f" and --nvme with --from {source.name}"
        )
    if size.smt and size.vcpus % 2:
        raise LabError(f"--smt: two CPUs are a core, so --vcpus must be even, not {size.vcpus}")
    if record and replace(record.size, vcpus=size.vcpus, memory_bytes=size.memory_bytes, smt=size.smt) != size:
        raise LabError(f"lab {one.name} keeps its disks: others take another name, or vmtax lab remove {one.name}")
    return size


def _saved_record(source: Lab) -> Record:
    source.record()
    if not source.has_saved:
        raise NoSuchLab(f"lab {source.name} was never saved: vmtax lab save {source.name}")
    record = read_record(source.saved, source.name)
    needed = [
        *disk_files(PurePosixPath(source.saved), record.size),
        *(source.saved / name for name in ("state", KEY, KNOWN_HOSTS)),
    ]
    missing = [path.name for path in needed if not Path(path).is_file()]
    if missing:
        raise LabError(f"{source.saved}: {', '.join(missing)} missing; save lab {source.name} again")
    return record


def _prepared(
    one: Lab,
    local: LocalMachine,
    emit: Emit,
    size: Size,
    source: Lab | None,
    record: Record | None,
    began: float,
) -> _Start:
    image = cache.current() or build.build(emit)
    emit(Step(WHAT, "looking at QEMU"))
    placed = place(local, local, image, emit)
    assert placed.tree is not None
    base = probe_spec(Qemu.of_image(local, placed.tree), placed)
    saved = source.saved if source else None
    credentials = Credentials.make(local) if saved is None else Credentials.stored(local, saved)
    # A saved state has other keys than the probe would get.
    own = credentials if credentials.archive else Credentials.make(local)
    accelerator = choose(local, base, own, local, emit)
    state = _Start(one, local, emit, size, image, base, accelerator, credentials, saved, zfs.current(image), began)
    if saved is not None and record is not None and (other := state.software.differences_from_saved(record.software)):
        raise LabError(
            f"the saved state of lab {source.name if source else ''} does not fit: now {'; '.join(other)}; "
            "start without --from, and save again"
        )
    if record is not None and saved is None and (other := state.software.differences(record.software)):
        state.warnings.append(f"its software has changed since its disks were last used: {'; '.join(other)}")
    make_disks(local, one, size, saved)
    return state


def _start(state: _Start) -> Up:
    """Start it, with two attempts: emulated SVM sometimes makes QEMU abort; the record says so."""
    _make_peer(state)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            up = _attempt(state, attempt)
            write(state.lab.up_file, up)
            keep(state.lab, Record(state.size, state.software))
            return up
        except (BootFailed, MachineLost, CommandFailed) as failure:  # CommandFailed: QEMU may be gone
            words = str(failure) if state.lab.last_words() in str(failure) else f"{failure}\n{state.lab.last_words()}"
            if attempt == ATTEMPTS:
                raise LabError(words) from failure
            state.warnings.append(f"came up at the second attempt: {'; '.join(words.splitlines()[:3])}")
    raise AssertionError("unreachable")


def _make_peer(state: _Start) -> None:
    """Make a network namespace for the peer; if that is not allowed, as for root in many containers, QEMU provides the
    peer.
    """
    local = state.local
    if state.link:
        there = _linked(state.lab, state.link)
        state.namespace = there.peer_namespace
        state.segment = Segment(local, local.token[:6], within=there.token[:6])
        return
    if os.geteuid() != 0:
        return
    try:
        if not os.access(TUN, os.W_OK):
            raise LabError(f"{TUN} cannot be opened")
        segment = Segment(local, local.token[:6])
        state.namespace = segment.add_end("peer", PEER_ADDRESS)
        state.segment = segment
    except (CommandFailed, LabError) as error:
        reason = str(error).splitlines()[-1].strip()
        state.warnings.append(
            f"the peer is QEMU's user networking, because this root may not create networks ({reason}): "
            f"a container needs {TUN}, NET_ADMIN and SYS_ADMIN"
        )


def _linked(one: Lab, name: str) -> Up:
    """The lab whose network will be shared. Raises LabError if that lab has none."""
    if name == one.name:
        raise LabError(f"--link {name}: is the lab itself; name another")
    there = lab(name).running()
    if there.peer_namespace is None:
        raise LabError(
            f"--link {name}: that lab has QEMU's user-mode network, which cannot be shared: start it as root"
        )
    return there


def _spec(state: _Start, runtime: PurePosixPath) -> GuestSpec:
    segment = state.segment
    base = replace(
        state.base,
        accelerator=state.accelerator.name,
        kernel_words=state.arguments,
        layers=(str(state.pack.path),) if state.pack else (),
        incoming=str(state.saved / "state") if state.saved else None,
    )
    taps = (segment.tap_name(), segment.tap_name()) if segment else None
    directory, logging = PurePosixPath(state.lab.directory), state.local.token if state.logs_writes else ""
    spec = lab_spec(base, state.lab.name, state.size, directory, runtime, taps, logging)
    return with_addresses(spec, state.local.token) if state.link else spec


def _attempt(state: _Start, number: int) -> Up:
    local, emit, name = state.local, state.emit, state.lab.name
    spec = _spec(state, local.scratch / f"lab-{number}")
    assert spec.lasting is not None
    for log in (Path(disk.log) for disk in spec.disks if disk.log):
        local.remove_later(PurePosixPath(log))  # removed when the lab ends; nothing written later is in it
        log.write_bytes(b"")
    emit(Step(WHAT, "from its saved state" if spec.incoming else "booting"))
    started = time.time()
    with boot(
        *(local, spec, state.credentials, local), patience=PATIENCE, attach=lambda: _attach(state, spec)
    ) as guest:
        pid = int(Path(spec.lasting.pid_file).read_text())
        if spec.incoming is not None:
            guest.machine.run(*COME_TO, f"@{time.time():.3f}", name)
        ready = time.monotonic() - state.began
        emit(Step(WHAT, f"ready after {ready:.1f} s; its devices settle"))
        if state.link:
            guest.machine.run(*OWN_ADDRESS, own_address(local.token))
        if _settles(state, guest.machine) and (why := why_standing(guest.machine)):
            raise MachineLost(f"lab {name} hangs: {why}")
        settled = time.monotonic() - state.began
        guest.leave()
    return Up(
        token=local.token,
        pid=pid,
        port=guest.ports[22],
        key=str(state.credentials.key),
        known_hosts=str(state.credentials.known_hosts),
        qmp=str(spec.lasting.socket),
        started=started,
        ready_seconds=ready,
        settled_seconds=settled,
        accelerator_reason=state.accelerator.reason,
        peer_namespace=state.namespace,
        warnings=state.warnings,
        restored=spec.incoming is not None,
        kernel_arguments=state.arguments,
        logs_writes=state.logs_writes,
        link=state.link,
    )


def _attach(state: _Start, spec: GuestSpec) -> None:
    """Connect its taps to the peer's network."""
    for card in spec.cards:
        if state.segment is not None and isinstance(card, Nic) and isinstance(card.behind, Tap):
            state.segment.attach(card.behind.interface)


def _settles(state: _Start, machine: Machine) -> bool:
    """Wait until it is ready. If its disks keep it busy for too long, it stays up, because they can only be repaired
    there.
    """
    if machine.try_run(*SETTLED, timeout=SETTLE_SECONDS).ok:
        return True
    last = machine.try_run("tail", "-n", "1", LOG).stdout.strip() or "nothing"
    state.warnings.append(
        f"lab {state.lab.name} is up, but its devices have not settled within {SETTLE_SECONDS:.0f} s; "
        f"{LOG} there ends with: {last}"
    )
    return False
