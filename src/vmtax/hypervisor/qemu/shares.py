"""QEMU's options for a directory of the parent that is shared with the guest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from vmtax.design.disk import Share
from vmtax.hypervisor.qemu.drives import escaped
from vmtax.hypervisor.spec import TAG, SharedDirectory


def device_of(share: Share) -> str:
    """QEMU's name of the device."""
    return "vhost-user-fs-pci" if share.is_virtiofs else "virtio-9p-pci"


def share_arguments(shares: Sequence[SharedDirectory]) -> tuple[str, ...]:
    """A guest has one at most."""
    words: tuple[str, ...] = ()
    for share in shares:
        device = device_of(share.kind)
        if share.kind.is_virtiofs:
            # The queue that QEMU's and virtiofsd's manuals recommend
            words += ("-chardev", f"socket,id={TAG},path={escaped(share.socket)}")
            words += ("-device", f"{device},chardev={TAG},tag={TAG},queue-size=1024")
        else:
            where = f"local,id={TAG},path={escaped(share.directory)},security_model=none"
            words += ("-fsdev", where, "-device", f"{device},fsdev={TAG},mount_tag={TAG}")
    return words


def reached(shares: Sequence[SharedDirectory]) -> tuple[str, ...]:
    """The directories that QEMU itself must reach."""
    return tuple(
        str(PurePosixPath(share.socket).parent) if share.kind.is_virtiofs else share.directory for share in shares
    )
