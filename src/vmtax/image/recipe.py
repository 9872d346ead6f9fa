"""What the root image is made of. A change here makes a new image."""

from __future__ import annotations

import hashlib
from importlib import resources

from vmtax.workload import WORKLOADS

SUITE = "trixie"  # Debian 13
COMPONENTS = "main"
KERNEL = "linux-image-amd64"  # the generic kernel: it has every bus, file system and network card as a module
PACKAGES = (
    # the guest's user space
    "busybox-static",
    "iproute2",
    "kmod",
    "openssh-server",
    "python3-minimal",  # the guard of a guest that carries nested guests
    "procps",
    *sorted({package for kind in WORKLOADS.values() for package in kind.packages}),
    # nesting
    "e2fsprogs",
    "qemu-system-x86",
    "qemu-utils",
    # a hypervisor host: `vmtax lab`
    "bubblewrap",
    "btrfs-progs",
    "fdisk",  # sfdisk
    "lvm2",
    "mdadm",
    "udev",
    "xfsprogs",
    "zstd",
)
EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# What the initramfs loads, in this order, dependencies added; crc32c is asked for by libcrc32c through the crypto
# interface, which modules.dep does not know.
BOOT_MODULES = ("virtio_blk", "crc32c_generic", "erofs", "overlay", "virtio_net")
GUEST_FILES = ("init", "lab", "poweroff")  # into /usr/lib/vmtax
INITRAMFS_INIT = "initramfs-init"
LAYOUT = 4  # of the image directory; raised when what build.py makes changes


def guest_file(name: str) -> bytes:
    """One of the scripts that run in the guest."""
    return resources.files("vmtax.image").joinpath(f"guest/{name}").read_bytes()


def key() -> str:
    """Digest of the recipe: an image with the same key need not be built again."""
    digest = hashlib.sha256()
    for word in (str(LAYOUT), SUITE, COMPONENTS, KERNEL, *PACKAGES, *EXCLUDED, *BOOT_MODULES):
        digest.update(word.encode() + b"\0")
    for name in (*GUEST_FILES, INITRAMFS_INIT):
        digest.update(guest_file(name) + b"\0")
    return digest.hexdigest()[:16]
