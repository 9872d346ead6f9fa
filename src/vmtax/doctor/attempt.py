"""Carry out `doctor --try`: make small things and remove them again, because reading proves little. The guard undoes
all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from vmtax.core.checks import Check
from vmtax.core.events import Event, Step
from vmtax.doctor.host_parts import Parts, tries
from vmtax.doctor.readings import HostReadings
from vmtax.hypervisor import (
    BootFailed,
    BootPatience,
    Credentials,
    Qemu,
    QemuError,
    boot,
    choose,
    probe_spec,
    remembered,
)
from vmtax.image.cache import Image, ImageError
from vmtax.image.place import Placed, check
from vmtax.machine import Machine, MachineError
from vmtax.network import PEER_ADDRESS, Segment
from vmtax.storage import DISK_DIRECTORY, RawFile
from vmtax.storage.file import StorageError
from vmtax.testbed.session.examine import enters, is_root
from vmtax.testbed.session.exclusive import Claim, hold
from vmtax.testbed.session.session import Hosts, connected

Emit = Callable[[Event], None]

SIZE = 2**20  # of the file that is written with O_DIRECT
BLOCK = 4096
ATTEMPTS = 2  # to boot an emulated guest: occasionally one is lost on a busy host
PATIENCE = BootPatience(ready=60.0)  # 4 s are usual
FAILURES = (MachineError, BootFailed, StorageError, QemuError, ImageError, OSError)
LONGEST = 300  # characters of a reason
# A tap that was moved to a namespace vanishes with the namespace. Constant text; the name is an argument.
DELETE_TAP = ("sh", "-c", '! test -e "/sys/class/net/$1" || exec ip link delete "$1"', "sh")
NOT_TRIED = Check("tried", "cold caches", "unknown", "not tried: it would slow down everything else on the host")


def announce(readings: HostReadings) -> tuple[str, ...]:
    """What will be made and removed again on the host under test; one line each."""
    lines = ["a guard process and private directories in /tmp, for as long as it takes"]
    if readings.placed and readings.qemu:
        lines.append("a guest of 512 MiB on /dev/kvm, and an emulated one where that does not boot")
        lines.append("a note in ~/.cache/vmtax/kvm.json of how /dev/kvm did; this one stays")
    if readings.user == 0:
        lines.append("two network namespaces with a bridge, a veth pair and a tap in them")
        lines.append(
            f"loop devices on sparse files in {DISK_DIRECTORY}: file systems, a volume group, an array, a pool"
        )
        lines.append("4 huge pages")
        if readings.placed and readings.qemu:
            lines.append("a guest on a bridge; another with a virtual function of a network card that is down")
        lines.append("kernel modules for all of these, as the kernel loads them; they stay loaded")
    lines.append(f"a file of 1 MiB in {DISK_DIRECTORY}, written and read with O_DIRECT")
    return tuple(lines)


def attempt(readings: HostReadings, emit: Emit) -> tuple[HostReadings, tuple[Check, ...]]:
    """Try everything that the readings allow; returns the readings with what is now known about KVM, and the checks."""
    left: list[str] = []
    with connected(readings.host, left.append) as hosts:
        hold(hosts, Claim.of("vmtax doctor --try"))
        readings, checks = attempt_on(hosts, readings, emit)
        emit(Step("removing what was made"))
    if left:
        checks = (*checks, Check("tried", "removal", "failed", "; ".join(left)))
    return readings, checks


def attempt_on(hosts: Hosts, readings: HostReadings, emit: Emit) -> tuple[HostReadings, tuple[Check, ...]]:
    """The same on machines whose guards the caller ends."""
    local, host = hosts.local, hosts.host
    checks: list[Check] = []
    image, placed = readings.image, readings.placed
    if image is None or placed is None:
        checks.append(_no_image(readings))
    elif (damaged := _tried("image", partial(_check_image, host, image, placed))).status == "failed":
        checks.append(damaged)
        readings, placed = replace(readings, placed=None), None  # the image is damaged: run nothing of it
    else:
        emit(Step("entering the image"))
        checks.append(_tried("host layer", lambda: _enter(host, placed)))
    credentials = Credentials.make(local)
    if placed is not None and readings.qemu is not None:
        readings, guests = _guests(hosts, readings, placed, readings.qemu, credentials, emit)
        checks += guests
    emit(Step("making a bridge and a file"))
    if readings.user == 0:
        checks.append(_tried("bridge", lambda: _bridge(host, local.token[:6])))
    if readings.user == 0:
        checks += _parts(hosts, readings, credentials, emit)
    checks.append(
        _tried("O_DIRECT", lambda: _direct(host, local.fresh_name("doctor")), "vmtax run --disk-dir /another/directory")
    )
    return readings, (*checks, NOT_TRIED)


def _parts(hosts: Hosts, readings: HostReadings, credentials: Credentials, emit: Emit) -> Iterator[Check]:
    """Checks of what plans about disks and networks need."""
    host, placed, qemu = hosts.host, readings.placed, readings.qemu
    guest = probe_spec(qemu, placed) if placed and qemu and readings.kvm_failure == "" else None
    directory = DISK_DIRECTORY / hosts.local.fresh_name("parts")
    host.remove_later(directory)
    try:
        host.run("mkdir", "-m", "700", str(directory))
    except MachineError as error:
        return iter([Check("tried", "volumes and cards", "unknown", f"not tried: {_reason(error)}")])
    return tries(Parts(host, hosts.local, directory, guest, credentials), lambda name: emit(Step("trying", name)))


def _tried(name: str, action: Callable[[], str], remedy: str = "") -> Check:
    try:
        return Check("tried", name, "ok", action())
    except FAILURES as error:
        return Check("tried", name, "failed", _reason(error), remedy)


def _reason(error: Exception) -> str:
    """The first lines of the error, which say what failed, in QEMU's own words; without the console."""
    lines = [line.strip() for line in str(error).partition("\nconsole:")[0].splitlines()]
    return " ".join(filter(None, lines))[:LONGEST]


def _no_image(readings: HostReadings) -> Check:
    if readings.image is None:
        return Check("tried", "guests", "unknown", "not tried: no image is built yet", "vmtax image build")
    text = "not tried: the image is not on that host yet, and is too large to be copied for a try"
    return Check("tried", "guests", "unknown", text, f"vmtax run{readings.option} --layers host --rounds 1")


def _check_image(host: Machine, image: Image, placed: Placed) -> str:
    check(host, image, placed)
    return "its files are those of the build"


def _enter(host: Machine, placed: Placed) -> str:
    assert placed.tree is not None
    host.run(*enters(placed.tree, root=is_root(host)))
    return "bubblewrap enters the image"


def _guests(
    hosts: Hosts, readings: HostReadings, placed: Placed, qemu: Qemu, credentials: Credentials, emit: Emit
) -> tuple[HostReadings, list[Check]]:
    """Boot a guest on KVM; if that fails, an emulated one."""
    local, host = hosts.local, hosts.host
    try:
        spec = probe_spec(qemu, placed)
        accelerator = choose(host, spec, credentials, local, emit, again=True)
    except FAILURES as error:
        return readings, [Check("tried", "guest on KVM", "failed", _reason(error))]
    if accelerator.name == "kvm":
        return replace(readings, kvm_failure=""), [Check("tried", "guest on KVM", "ok", accelerator.reason)]
    failure = remembered(str(readings.facts["boot_id"]), qemu)
    text = f"no guest boots on /dev/kvm: {failure}" if readings.rights.may("kvm") and failure else accelerator.reason
    checks = [Check("tried", "guest on KVM", "failed", text)]

    def emulated() -> str:
        own = qemu if qemu.emulates_steadily else Qemu.of_image(host, str(placed.tree))
        guest_spec = replace(spec, accelerator="tcg", hypervisor=own)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with boot(host, guest_spec, credentials, local, patience=PATIENCE) as guest:
                    return f"booted in {guest.ready_seconds:.1f} s by QEMU {own.version}"
            except BootFailed:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    emit(Step("booting an emulated guest", "half a minute at most"))
    checks.append(_tried("emulated guest", emulated))
    return replace(readings, kvm_failure=failure), checks


def _bridge(host: Machine, token: str) -> str:
    segment = Segment(host, token)
    segment.add_end("peer", PEER_ADDRESS)
    tap = segment.tap_name()
    host.undo_later(*DELETE_TAP, tap)
    host.run("ip", "tuntap", "add", "dev", tap, "mode", "tap")
    segment.attach(tap)
    return "a bridge, a veth pair and a tap, in network namespaces of their own"


def _direct(host: Machine, name: str) -> str:
    ours = DISK_DIRECTORY / name
    host.remove_later(ours)
    host.run("mkdir", "-m", "700", str(ours))
    file = RawFile.allocate(host, ours / "file", SIZE)
    sizes = (f"bs={BLOCK}", f"count={SIZE // BLOCK}", "status=none")
    host.run("dd", "if=/dev/zero", f"of={file.path}", "oflag=direct", "conv=notrunc,fsync", *sizes)
    host.run("dd", f"if={file.path}", "of=/dev/null", "iflag=direct", *sizes)
    return f"a file in {DISK_DIRECTORY} was written and read past the page cache"
