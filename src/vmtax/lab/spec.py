"""What a lab is: a guest with many disks, cards to a peer, and an IOMMU. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vmtax.design.disk import DiskSettings
from vmtax.hypervisor import Drive, GuestSpec, Lasting, Nic, Tap, UserNetwork

DEFAULT_NAME = "lab"
# Beside its disks: what its kernel said in its last start, and what its hypervisor said on standard error.
CONSOLE, LOG = "console.log", "qemu.log"
# Outside, in a network namespace of the launching machine, or played by QEMU's user networking.
PEER_ADDRESS = "10.78.0.1"
SUBNET = "10.78.0.0/24"


@dataclass(frozen=True, slots=True)
class Size:
    """How large a lab is; kept with its disks."""

    vcpus: int = 2
    memory_bytes: int = 4 * 2**30
    work_bytes: int = 16 * 2**30  # its own disk: /var/tmp and /root
    spares: int = 4  # disks for storage under test
    spare_bytes: int = 4 * 2**30
    nvme: bool = False  # one more, as NVMe; a lab with it cannot be saved


def disk_files(directory: PurePosixPath, size: Size) -> tuple[PurePosixPath, ...]:
    """work.raw, spare1.raw, ... and nvme.raw."""
    names = ["work", *(f"spare{number}" for number in range(1, size.spares + 1)), *(["nvme"] if size.nvme else [])]
    return tuple(directory / f"{name}.raw" for name in names)


def disk_bytes(size: Size) -> tuple[int, ...]:
    """How large each of `disk_files` is."""
    return (size.work_bytes, *[size.spare_bytes] * (size.spares + size.nvme))


def write_log(directory: PurePosixPath, disk: str, token: str) -> PurePosixPath:
    """Where the writes to one of its disks are logged; of each start another, for each begins with an empty one."""
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
    """`base`, with its hypervisor, kernel and its arguments, images and the state that it goes on from, as that lab.

    `directory`: of its disks; `runtime`: is made when it starts
    `taps`: names for taps to the peer and under the SR-IOV card; None: QEMU's user network plays the peer
    `logging`: the token of a start in which all writes to the spare disks are logged; "": none are
    """
    words = (
        "no_timer_check",  # on a busy machine an emulated timer may be late, for which the kernel would panic
        *("net.ifnames=0", "intel_iommu=on", "iommu=pt", f"vmtax.lab={name}"),
        *base.kernel_words,
    )
    peer, functions = map(Tap, taps) if taps else [UserNetwork(SUBNET, PEER_ADDRESS)] * 2
    return replace(
        base,
        name=f"vmtax-lab-{name}",
        vcpus=size.vcpus,
        memory_bytes=size.memory_bytes,
        disks=tuple(_disk(path, logging) for path in disk_files(directory, size)),
        cards=(
            Nic(peer, "52:54:00:76:74:11", name="peer"),
            Nic(functions, "52:54:00:76:74:12", name="sriov", model="igb", own_port=True),
        ),
        kernel_words=words,
        iommu=True,
        lasting=Lasting(runtime, directory / CONSOLE, directory / LOG),
    )


def with_addresses(spec: GuestSpec, token: str) -> GuestSpec:
    """The same lab, with cards that no other lab of its network has. `token`: of its start."""
    cards = [
        replace(card, mac=f"{card.mac[:9]}{77 + number}:{token[:2]}:{token[2:4]}") if isinstance(card, Nic) else card
        for number, card in enumerate(spec.cards)
    ]
    return replace(spec, cards=tuple(cards))


def own_address(token: str) -> str:
    """Of a lab in the network of another: not that other one's, nor the peer's."""
    return f"{PEER_ADDRESS.rpartition('.')[0]}.{100 + int(token[:2], 16) % 128}/24"


def _disk(path: PurePosixPath, logging: str) -> Drive:
    # cache=none: what the lab's page cache holds is lost in its power cut, as on hardware. On a full disk of the
    # launching machine the lab pauses and nothing is lost (werror=enospc, QEMU's default).
    return Drive(
        str(path),
        DiskSettings(bus="nvme" if path.stem == "nvme" else "virtio", aio="threads", discard="unmap"),
        name=path.stem,
        serial=f"vmtax-{path.stem}",
        auto_read_only=False,
        log=str(write_log(path.parent, path.stem, logging)) if logging and path.stem.startswith("spare") else "",
    )
