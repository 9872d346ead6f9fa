"""The recipe of the root image; a change here makes a new image."""

from __future__ import annotations

import hashlib
from importlib import resources

from vmtax.image.additions import NOTHING, Additions
from vmtax.workload import WORKLOADS

SUITE = "trixie"  # Debian 13
COMPONENTS = "main"
KERNEL = "linux-image-amd64"  # the generic kernel: it has modules for every bus, file system and network card
PACKAGES = (
    # the guest's userland
    "busybox-static",
    "iproute2",
    "kmod",
    "openssh-server",
    "python3-minimal",  # for the guard of a guest that carries nested guests
    "procps",
    *sorted({package for kind in WORKLOADS.values() for package in kind.packages}),
    # for nesting
    "e2fsprogs",
    "qemu-system-x86",
    "qemu-utils",
    # for a hypervisor host: `vmtax lab`
    "bubblewrap",
    "btrfs-progs",
    "fdisk",  # for sfdisk
    "lvm2",
    "mdadm",
    "udev",
    "xfsprogs",
    "zstd",
)
EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# Modules that the initramfs loads, in this order and with dependencies; libcrc32c requests crc32c through the crypto
# interface, which modules.dep does not show.
BOOT_MODULES = ("virtio_blk", "crc32c_generic", "erofs", "overlay", "virtio_net")
GUEST_FILES = ("init", "lab", "poweroff")  # installed into /usr/lib/vmtax
INITRAMFS_INIT = "initramfs-init"
LAYOUT = 4  # of the image directory; increased when build.py's result changes


def guest_file(name: str) -> bytes:
    """One of the scripts that run in the guest."""
    return resources.files("vmtax.image").joinpath(f"guest/{name}").read_bytes()


OURS = 6  # digits of the key that name the recipe alone, if the image has additions


def key(additions: Additions = NOTHING) -> str:
    """Digest of the recipe, and of what is added to it: an image with the same key need not be built again."""
    digest = hashlib.sha256()
    for word in (str(LAYOUT), SUITE, COMPONENTS, KERNEL, *PACKAGES, *EXCLUDED, *BOOT_MODULES):
        digest.update(word.encode() + b"\0")
    for name in (*GUEST_FILES, INITRAMFS_INIT):
        digest.update(guest_file(name) + b"\0")
    base = digest.hexdigest()
    return base[:OURS] + additions.digest[: 16 - OURS] if additions else base[:16]


def is_ours(other: str) -> bool:
    """Whether an image with that key was built by the present recipe, with or without additions."""
    return other[:OURS] == key()[:OURS]
