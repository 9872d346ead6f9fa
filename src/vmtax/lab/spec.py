"""The specification of a lab: a guest with many disks, cards to a peer, and an IOMMU. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vmtax.design.disk import DiskSettings
from vmtax.hypervisor import Drive, GuestSpec, Lasting, Nic, Tap, UserNetwork

DEFAULT_NAME = "lab"
# Beside its disks: the console of its last start, and its hypervisor's standard error.
CONSOLE, LOG = "console.log", "qemu.log"
# Outside the lab: in a network namespace of the machine that runs it, or provided by QEMU's user networking.
PEER_ADDRESS = "10.78.0.1"
SUBNET = "10.78.0.0/24"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a lab; stored with its disks."""

    vcpus: int = 2
    memory_bytes: int = 4 * 2**30
    work_bytes: int = 16 * 2**30  # its own disk: /var/tmp and /root
    spares: int = 4  # disks for storage under test
    spare_bytes: int = 4 * 2**30
    nvme: bool = False  # one more disk, as NVMe; a lab with it cannot be saved
    smt: bool = False  # two of its CPUs are the threads of a core


def disk_files(directory: PurePosixPath, size: Size) -> tuple[PurePosixPath, ...]:
    """Paths work.raw, spare1.raw, ... and nvme.raw."""
    names = ["work", *(f"spare{number}" for number in range(1, size.spares + 1)), *(["nvme"] if size.nvme else [])]
    return tuple(directory / f"{name}.raw" for name in names)


def disk_bytes(size: Size) -> tuple[int, ...]:
    """Sizes of `disk_files` in bytes."""
    return (size.work_bytes, *[size.spare_bytes] * (size.spares + size.nvme))


def write_log(directory: PurePosixPath, disk: str, token: str) -> PurePosixPath:
    """Path of the log of writes to one of its disks; each start has its own, because each begins with an empty log."""
    return directory / f"{disk}-{token[:8]}.writes"


def lab_spec(
    base: GuestSpec,
    name: str,
    size: Size,
    directory: PurePosixPath,
    runtime: PurePosixPath,
    taps: tuple[str, str] | None = None,
    logging: str = "",
) -> GuestSpec:
    """`base`, with its hypervisor, kernel and arguments, images and saved state, as that lab.

    `directory`: of its disks; `runtime`: created when it starts
    `taps`: names for taps to the peer and under the SR-IOV card; None: QEMU's user networking provides the peer
    `logging`: the token of a start in which all writes to the spare disks are logged; "": not logged
    """
    words = (
        "no_timer_check",  # on a busy machine an emulated timer may be late, which would make the kernel panic
        *("net.ifnames=0", "intel_iommu=on", "iommu=pt", f"vmtax.lab={name}"),
        *base.kernel_words,
    )
    peer, functions = map(Tap, taps) if taps else [UserNetwork(SUBNET, PEER_ADDRESS)] * 2
    return replace(
        base,
        name=f"vmtax-lab-{name}",
        settings=replace(base.settings, topology="threads" if size.smt else base.settings.topology),
        vcpus=size.vcpus,
        memory_bytes=size.memory_bytes,
        disks=tuple(_disk(path, logging) for path in disk_files(directory, size)),
        cards=(
            Nic(peer, "52:54:00:76:74:11", name="peer"),
            Nic(functions, "52:54:00:76:74:12", name="sriov", model="igb", own_port=True),
        ),
        kernel_words=words,
        iommu=True,
        carries=True,
        lasting=Lasting(runtime, directory / CONSOLE, directory / LOG),
    )


def with_addresses(spec: GuestSpec, token: str) -> GuestSpec:
    """The same lab, with MAC addresses that no other lab of its network has. `token`: of its start."""
    cards = [
        replace(card, mac=f"{card.mac[:9]}{77 + number}:{token[:2]}:{token[2:4]}") if isinstance(card, Nic) else card
        for number, card in enumerate(spec.cards)
    ]
    return replace(spec, cards=tuple(cards))


def own_address(token: str) -> str:
    """The address of a lab in the network of another: neither that one's, nor the peer's."""
    return f"{PEER_ADDRESS.rpartition('.')[0]}.{100 + int(token[:2], 16) % 128}/24"


def _disk(path: PurePosixPath, logging: str) -> Drive:
    # cache=none: a power cut loses the contents of the lab's page cache, as on hardware. If the disk of the machine
    # that runs the lab is full, the lab pauses and nothing is lost (werror=enospc, QEMU's default).
    return Drive(
        str(path),
        DiskSettings(bus="nvme" if path.stem == "nvme" else "virtio", aio="threads", discard="unmap"),
        name=path.stem,
        serial=f"vmtax-{path.stem}",
        auto_read_only=False,
        log=str(write_log(path.parent, path.stem, logging)) if logging and path.stem.startswith("spare") else "",
    )
