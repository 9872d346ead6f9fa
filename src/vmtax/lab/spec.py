"""What a lab is, and the QEMU command line that says so. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from vmtax.hypervisor.confine import Reach
from vmtax.hypervisor.qemu.detect import Qemu
from vmtax.hypervisor.spec import cpu_arguments, device_files, escaped, is_device

DEFAULT_NAME = "lab"
CONSOLE = "console.log"  # beside its disks: what its kernel said in its last start
# Outside, in a network namespace of the launching machine, or played by QEMU's user networking.
PEER_ADDRESS = "10.78.0.1"
SUBNET = "10.78.0.0/24"
MACS = {"peer": "52:54:00:76:74:11", "sriov": "52:54:00:76:74:12"}
ROOT_PORT = "sriov-port"


@dataclass(frozen=True, slots=True)
class Size:
    """How large a lab is; kept with its disks."""

    vcpus: int = 2
    memory_bytes: int = 4 * 2**30
    work_bytes: int = 16 * 2**30  # its own disk: /var/tmp and /root
    spares: int = 4  # disks for storage under test
    spare_bytes: int = 4 * 2**30
    nvme: bool = False  # one more, as NVMe; a lab with it cannot be saved


@dataclass(frozen=True, slots=True)
class LabSpec:
    """Everything that decides how a lab runs. Paths are the launching machine's."""

    name: str
    size: Size
    accelerator: Literal["kvm", "tcg"]
    qemu: Qemu
    kernel: str
    initrd: str  # with the lab's credentials
    root: str
    layers: tuple[str, ...]  # erofs files over the root image: ZFS
    disks: PurePosixPath  # the directory of its disks and its console
    runtime: PurePosixPath  # the directory of its QMP socket
    taps: tuple[str, str] | None = None  # names for taps to the peer and under the SR-IOV card; None: user networking
    saved: str | None = None  # a file with the state of a saved lab, to go on from

    @property
    def console(self) -> PurePosixPath:
        return self.disks / CONSOLE

    @property
    def pid_file(self) -> PurePosixPath:
        """Where QEMU writes its process id, which is not that of what started it."""
        return self.runtime / "pid"

    @property
    def disk_files(self) -> tuple[PurePosixPath, ...]:
        """The disk files, in the order of their devices."""
        return disk_files(self.disks, self.size)


def disk_files(directory: PurePosixPath, size: Size) -> tuple[PurePosixPath, ...]:
    """work.raw, spare1.raw, ... and nvme.raw."""
    names = ["work", *(f"spare{number}" for number in range(1, size.spares + 1)), *(["nvme"] if size.nvme else [])]
    return tuple(directory / f"{name}.raw" for name in names)


def disk_bytes(size: Size) -> tuple[int, ...]:
    """How large each of `disk_files` is."""
    return (size.work_bytes, *[size.spare_bytes] * (size.spares + size.nvme))


def command_line(spec: LabSpec) -> tuple[str, ...]:
    """The argv."""
    return (
        *spec.qemu.for_guest(_reach(spec), outlives=True),
        *("-name", f"vmtax-lab-{spec.name}", "-nodefaults", "-no-user-config", "-display", "none"),
        "-no-reboot",
        # The IOMMU remaps interrupts, for which they must not all be KVM's own.
        *("-machine", "q35,kernel-irqchip=split", *cpu_arguments(spec.accelerator)),
        *("-device", "intel-iommu,intremap=on"),
        *("-smp", str(spec.size.vcpus), "-m", f"{spec.size.memory_bytes // 2**20}M"),
        *("-kernel", spec.kernel, "-initrd", spec.initrd, "-append", kernel_arguments(spec)),
        # Neither this nor -incoming is split at commas.
        *("-serial", f"file:{spec.console}"),
        *("-qmp", f"unix:{escaped(str(spec.runtime / 'qmp'))},server=on,wait=off"),
        *("-pidfile", str(spec.pid_file)),
        *_disks(spec),
        *_network(spec),
        *(("-incoming", f"file:{spec.saved}") if spec.saved else ()),
    )


def _reach(spec: LabSpec) -> Reach:
    given = (spec.root, *spec.layers)
    return Reach(
        read=(spec.kernel, *(path for path in given if not is_device(path)), *((spec.saved,) if spec.saved else ())),
        write=(str(spec.disks), str(spec.runtime)),
        devices=(*filter(is_device, given), *device_files(spec.accelerator, tap=spec.taps is not None)),
    )


def kernel_arguments(spec: LabSpec) -> str:
    """The lab kernel's command line."""
    first_layer = 1 + sum(path.stem != "nvme" for path in spec.disk_files)
    layers = [f"vmtax.layer={_virtio(first_layer + number)}" for number in range(len(spec.layers))]
    words = (
        "console=ttyS0",
        "panic=-1",
        "quiet",
        # On a busy machine an emulated timer may be late, for which the kernel would panic.
        "no_timer_check",
        "net.ifnames=0",
        "intel_iommu=on",
        "iommu=pt",
        f"vmtax.lab={spec.name}",
        *layers,
    )
    return " ".join(words)


def _virtio(number: int) -> str:
    return f"/dev/vd{chr(ord('a') + number)}"


def _disks(spec: LabSpec) -> tuple[str, ...]:
    """Root image first, layers last: so a disk keeps its name whether or not there is ZFS."""
    words = _virtio_disk("root", spec.root, "readonly=on")
    for path in spec.disk_files:
        # cache=none: what the lab's page cache holds is lost in its power cut, as on hardware. On a full disk of the
        # launching machine the lab pauses and nothing is lost (werror=enospc, QEMU's default).
        # Open for writing from the start: once QEMU is another user, it could not open it anew when its state is loaded
        # or was saved.
        how = "cache=none,aio=threads,discard=unmap,auto-read-only=off"
        if path.stem == "nvme":
            drive = f"if=none,id=nvme,format=raw,{how},file={escaped(str(path))}"
            words += ("-drive", drive, "-device", "nvme,drive=nvme,serial=vmtax-nvme")
        else:
            words += _virtio_disk(path.stem, str(path), how)
    for number, layer in enumerate(spec.layers):
        words += _virtio_disk(f"layer{number}", layer, "readonly=on")
    return words


def _virtio_disk(name: str, path: str, how: str) -> tuple[str, ...]:
    drive = f"if=none,id={name},format=raw,{how},file={escaped(path)}"
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive={name},serial=vmtax-{name}")


def _network(spec: LabSpec) -> tuple[str, ...]:
    """Management; a card to the peer; one with virtual functions (igb), behind a port of its own, also to the peer."""
    # As in a guest: port 0 is one that the kernel picks; restrict=on: the lab reaches nothing.
    words: tuple[str, ...] = ("-netdev", "user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:0-:22")
    words += ("-device", "virtio-net-pci,netdev=management,romfile=")
    for number, name in enumerate(MACS):
        if spec.taps is not None:
            words += ("-netdev", f"tap,id={name},ifname={spec.taps[number]},script=no,downscript=no")
        else:
            words += ("-netdev", f"user,id={name},restrict=on,net={SUBNET},host={PEER_ADDRESS}")
    words += ("-device", f"virtio-net-pci,netdev=peer,mac={MACS['peer']},romfile=")
    words += ("-device", f"pcie-root-port,id={ROOT_PORT},chassis=1,slot=1")
    return (*words, "-device", f"igb,netdev=sriov,bus={ROOT_PORT},mac={MACS['sriov']},romfile=")
