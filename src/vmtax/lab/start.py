"""Starts a lab, from its disks or from a saved state, and leaves it to its guard."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from vmtax.event import Event, Step
from vmtax.hypervisor import Accelerator, BootFailed, Credentials, Qemu, choose, image_qemu
from vmtax.hypervisor.accelerator import probe_spec
from vmtax.hypervisor.boot import Console, Patience, died, wait_until_ready
from vmtax.hypervisor.qmp import Qmp, QmpError, Socket
from vmtax.image import build, cache, zfs
from vmtax.image.cache import Image
from vmtax.image.place import Placed, place
from vmtax.lab.home import (
    RECORD,
    Lab,
    LabError,
    NoSuchLab,
    Record,
    Software,
    Up,
    check_unused,
    copy_disk,
    held,
    labs_directory,
    read_record,
    write,
)
from vmtax.lab.monitor import go_on
from vmtax.lab.spec import DEFAULT_NAME, PEER_ADDRESS, LabSpec, Size, command_line, disk_bytes, disk_files
from vmtax.machine import MachineLost, Process
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine
from vmtax.meter.memory import available_memory
from vmtax.network import Segment

Emit = Callable[[Event], None]

WHAT = "starting the lab"
QEMU_BYTES = 384 * 2**20  # beside the lab's memory: QEMU itself and its translated code
PATIENCE = Patience(ready=180.0)
QMP_SECONDS = 30.0
LOAD_SECONDS = 300.0  # of a saved state, which may be as large as the lab's memory
SETTLE_SECONDS = 90.0
ATTEMPTS = 2
# QEMU's last words outlive it. Constant text, the arguments stay arguments.
KEEPING_WORDS = ("sh", "-c", 'log=$1; shift; exec "$@" 2>"$log"', "sh")
# Not what a later start of the lab has written. Constant text.
FORGET = ("sh", "-c", '! grep -qF "$1" "$2" 2> /dev/null || rm "$2"', "sh")
# A saved lab stood still meanwhile, maybe under another name. One command: it is what the start waits for.
COME_TO = ("sh", "-c", 'date -u -s "$1" && hostname "$2"', "sh")
SETTLED = ("sh", "-c", "until test -e /run/vmtax/settled; do sleep 0.1; done")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for; None: as the lab is, or as usual."""

    vcpus: int | None = None
    memory_bytes: int | None = None
    spares: int | None = None
    spare_bytes: int | None = None
    nvme: bool | None = None

    def on(self, size: Size) -> Size:
        given = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        return replace(size, **given)


@dataclass
class _Start:
    """What one start has found out and made so far."""

    lab: Lab
    local: LocalMachine
    emit: Emit
    size: Size
    image: Image
    qemu: Qemu
    accelerator: Accelerator
    credentials: Credentials
    saved: Path | None
    pack: zfs.Pack | None
    began: float  # monotonic clock
    verified: Future[None]  # the image, while the lab boots already
    segment: Segment | None = None
    namespace: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def software(self) -> Software:
        zfs_version, build_of_it = (self.pack.version, self.pack.digest) if self.pack else (None, None)
        image, accelerator = self.image, self.accelerator
        return Software(
            self.qemu.version, image.identity, image.kernel, zfs_version, accelerator.name, zfs_build=build_of_it
        )


def start(one: Lab, wish: Wish, emit: Emit, source: Lab | None = None) -> Up:
    """Bring up a lab, a new one where there is none; one that QEMU paused goes on.

    `source`: from the saved state of that lab, disks included.

    Raises LabError, and what image, QEMU and machines raise. What was set up is undone where it does not come up.
    """
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
        record = _saved_record(source) if source else (one.record() if one.exists else None)
        size = wish.on(record.size if record else Size())
        if record and replace(size, vcpus=record.size.vcpus, memory_bytes=record.size.memory_bytes) != record.size:
            raise LabError(f"lab {one.name} keeps its disks: others take another name, or vmtax lab remove {one.name}")
        if source and record and size != record.size:
            raise LabError(
                f"a saved lab has its memory and CPUs: leave out --memory and --vcpus with --from {source.name}"
            )
        check_unused(one)
        local = LocalMachine()
        if os.geteuid() == 0:
            local.scratch_parent = PurePosixPath("/run")  # old files in /tmp are swept away, and a lab may live long
        with contextlib.ExitStack() as stack:
            if not one.directory.exists():
                stack.callback(shutil.rmtree, one.directory, ignore_errors=True)  # what never was up is not kept
            stack.callback(local.close)
            local.undo_later(*FORGET, local.token, str(one.up_file))  # first, so undone last: `lab stop` waits for it
            _check_memory(local, size)
            helper = stack.enter_context(ThreadPoolExecutor(1))
            try:
                up = _start(_prepared(one, local, emit, size, source, record, helper))
            except OSError as error:
                where = f"{error.filename or one.directory}: {error.strerror}"
                raise LabError(f"{where}; make room, or set XDG_DATA_HOME to another directory") from error
            local.leave_to(up.pid)
            stack.pop_all()
            helper.shutdown()
    return up


def _saved_record(source: Lab) -> Record:
    source.record()
    if not source.has_saved:
        raise NoSuchLab(f"lab {source.name} was never saved: vmtax lab save {source.name}")
    return read_record(source.saved, source.name)


def _check_memory(local: LocalMachine, size: Size) -> None:
    available, takes = available_memory(local), size.memory_bytes + QEMU_BYTES
    if available is not None and available < takes:
        raise LabError(
            f"{available / 2**30:.1f} GiB of memory are available, the lab takes {takes / 2**30:.1f} GiB: "
            "end something, or give it less with --memory (2GiB carry a small guest)"
        )


def _prepared(
    one: Lab,
    local: LocalMachine,
    emit: Emit,
    size: Size,
    source: Lab | None,
    record: Record | None,
    helper: ThreadPoolExecutor,
) -> _Start:
    began = time.monotonic()
    image = cache.current() or build.build(emit)
    verified = helper.submit(cache.verify, image)
    emit(Step(WHAT, "looking at QEMU"))
    placed = place(local, local, image, emit)
    assert placed.tree is not None
    qemu = image_qemu(local, placed.tree)
    saved = source.saved if source else None
    credentials = Credentials.make(local) if saved is None else Credentials.stored(local, saved)
    accelerator = _accelerator(local, qemu, placed, credentials, emit)
    found = _Start(
        one, local, emit, size, image, qemu, accelerator, credentials, saved, zfs.current(image), began, verified
    )
    if saved is not None and record is not None and (other := found.software.differences(record.software)):
        raise LabError(
            f"the saved state of lab {source.name if source else ''} needs what it was saved with: {'; '.join(other)}; "
            "start without --from, and save again"
        )
    if record is not None and saved is None and (other := found.software.differences(record.software)):
        found.warnings.append(f"its disks were last used with other software: {'; '.join(other)}")
    _make_disks(found)
    return found


def _accelerator(local: LocalMachine, qemu: Qemu, placed: Placed, credentials: Credentials, emit: Emit) -> Accelerator:
    # A saved state has other keys than the probe would be told.
    own = credentials if credentials.archive else Credentials.make(local)
    return choose(local, probe_spec(qemu, placed), qemu.version, own, local, emit)


def _make_disks(found: _Start) -> None:
    """Sparse files for a new lab; copies where it begins from a saved state. Its record is there when all are."""
    one, local = found.lab, found.local
    record = Record(found.size, found.software)
    if one.exists and found.saved is None:
        missing = [path.name for path in one.disks if not path.is_file()]
        if missing:
            raise LabError(f"{one.directory}: {', '.join(missing)} missing: vmtax lab remove {one.name}")
        write(one.directory / RECORD, record)
        return
    if one.directory.exists() and not one.exists:
        raise LabError(f"{one.directory} is there, but is no lab: it has no {RECORD}; remove it, or take another name")
    new = labs_directory() / f".making-{local.token}"
    making = local.remove_later(PurePosixPath(new))
    try:
        new.mkdir(mode=0o700)
        for path, size in zip(disk_files(PurePosixPath(new), found.size), disk_bytes(found.size), strict=True):
            if found.saved is not None:
                copy_disk(found.local, found.saved / path.name, Path(path))
            else:
                with Path(path).open("wb") as file:
                    file.truncate(size)
        write(new / RECORD, record)
        if one.exists:  # it goes back to its own saved state
            for made in new.iterdir():
                made.replace(one.directory / made.name)
        else:
            new.rename(one.directory)
        making.undo()
    except OSError as error:
        where = error.filename or one.directory
        raise LabError(f"{where}: {error.strerror}; set XDG_DATA_HOME to another directory") from error


def _start(found: _Start) -> Up:
    """Tried twice: emulated SVM makes QEMU abort now and then; the record says so."""
    local = found.local
    if os.geteuid() == 0:
        found.segment = Segment(local, local.token[:6])
        found.namespace = found.segment.add_end("peer", PEER_ADDRESS)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            up = _attempt(found, attempt)
            write(found.lab.up_file, up)
            return up
        except (BootFailed, MachineLost) as failure:
            words = str(failure) if found.lab.last_words() in str(failure) else f"{failure}\n{found.lab.last_words()}"
            if attempt == ATTEMPTS:
                raise LabError(words) from failure
            found.warnings.append(f"came up at the second attempt: {'; '.join(words.splitlines()[:3])}")
    raise AssertionError("unreachable")


def _spec(found: _Start, runtime: PurePosixPath) -> LabSpec:
    segment = found.segment
    initrd = runtime / "initrd"
    return LabSpec(
        name=found.lab.name,
        size=found.size,
        accelerator=found.accelerator.name,
        qemu=found.qemu.command,
        kernel=str(found.image.vmlinux),
        initrd=str(initrd),
        root=str(found.image.root),
        layers=(str(found.pack.path),) if found.pack else (),
        disks=PurePosixPath(found.lab.directory),
        runtime=runtime,
        taps=(segment.tap_name(), segment.tap_name()) if segment else None,
        saved=str(found.saved / "state") if found.saved else None,
    )


def _attempt(found: _Start, number: int) -> Up:
    local, emit = found.local, found.emit
    runtime = local.scratch / f"lab-{number}"
    spec = _spec(found, runtime)
    Path(runtime).mkdir(mode=0o700)
    Path(spec.initrd).write_bytes(found.credentials.archive + found.image.initrd.read_bytes())
    Path(spec.console).write_bytes(b"")
    with contextlib.ExitStack() as stack:
        console = Console(local, spec.console)
        stack.callback(console.stop)
        emit(Step(WHAT, "from its saved state" if spec.saved else "booting"))
        started, launched = time.time(), time.monotonic()
        process = local.start(*KEEPING_WORDS, str(found.lab.log), *command_line(spec))
        failed = stack.enter_context(contextlib.ExitStack())
        failed.callback(process.stop)
        port = _monitor(found, spec, process, console, stack)
        if spec.saved is None:
            wait_until_ready(found.lab.name, process, console, PATIENCE, launched)
        machine = SshMachine(
            found.lab.name, local, "root@127.0.0.1", (*found.credentials.options(), "-p", str(port)), is_guest=True
        )
        stack.callback(machine.close)
        machine.connect(PATIENCE.ready)
        if spec.saved is None:
            machine.run("true")
        else:
            machine.run(*COME_TO, f"@{time.time():.3f}", found.lab.name)
        ready = time.monotonic() - found.began
        found.verified.result()
        emit(Step(WHAT, f"ready after {ready:.1f} s; its devices settle"))
        machine.run(*SETTLED, timeout=SETTLE_SECONDS)
        settled = time.monotonic() - found.began
        failed.pop_all()
    return Up(
        token=local.token,
        pid=process.pid,
        port=port,
        key=str(found.credentials.key),
        known_hosts=str(found.credentials.known_hosts),
        qmp=str(runtime / "qmp"),
        started=started,
        ready_seconds=ready,
        settled_seconds=settled,
        accelerator_reason=found.accelerator.reason,
        peer_namespace=found.namespace,
        warnings=found.warnings,
        restored=spec.saved is not None,
    )


def _monitor(found: _Start, spec: LabSpec, process: Process, console: Console, stack: contextlib.ExitStack) -> int:
    """Talk to QEMU over its socket: attach its taps, let a saved state go on; the port of its ssh."""
    path = Path(spec.runtime) / "qmp"
    try:
        socket = _connected(str(path), process)
        stack.callback(socket.close)
        qmp = Qmp(socket, QMP_SECONDS)
        for tap in spec.taps or ():
            assert found.segment is not None
            found.segment.attach(tap)
        port = qmp.forwarded_ports()[22]
        if spec.saved is not None:
            _loaded(qmp)
            qmp.execute("cont")
        return port
    except QmpError as error:
        raise died(f"lab {found.lab.name}", process, console, str(error)) from error


def _connected(path: str, process: Process) -> Socket:
    """Where QEMU ends instead, nobody waits for it."""
    deadline = time.monotonic() + QMP_SECONDS
    while True:
        try:
            return Socket(path, 0.0)
        except QmpError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _loaded(qmp: Qmp) -> None:
    deadline = time.monotonic() + LOAD_SECONDS
    while qmp.execute("query-status")["status"] == "inmigrate":
        if time.monotonic() > deadline:
            raise QmpError(f"the saved state is not loaded after {LOAD_SECONDS:.0f} s")
        time.sleep(0.02)
