"""A host as its owner has it: a Debian 13 with systemd, libvirt, AppArmor and KVM, emulated here, reached by ssh.

No image of vmtax is in it, and its libvirt is set up as Debian sets it up: QEMU runs as a user of its own, confined by
AppArmor, in a cgroup of machine.slice. Its KVM is the real module on emulated AMD-V.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tests.owners_vm import GuestFiles, Libvirt, archive, wait_until
from vmtax.image.cache import current

PACKAGES = (
    "linux-image-amd64,systemd-sysv,udev,dbus,kmod,zstd,initramfs-tools,openssh-server,iproute2,python3,"
    "apparmor,bubblewrap,libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils"
)
ALIAS = "owner"  # by which ssh knows it
SIZE, MEMORY = "16G", 5120  # of its disk, of its memory in MiB
GUESTS = PurePosixPath("/srv/guests")
# Its root, before it is a disk. $1: the root. Static, because QEMU's network has only one answer.
SET_UP = r"""
set -e
echo owner > "$1/etc/hostname"
: > "$1/etc/fstab"
printf '[Match]\nType=ether\nKind=!*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' \
    > "$1/etc/systemd/network/10-owner.network"
ln -sf /usr/lib/systemd/system/systemd-networkd.service "$1/etc/systemd/system/multi-user.target.wants/"
install -d -m 700 "$1/root/.ssh"
cp "$2" "$1/root/.ssh/authorized_keys"
rm -f "$1"/etc/systemd/system/timers.target.wants/*
"""
# Gives the command a private ~/.ssh and changes no other: constant text, the arguments stay arguments.
WITH_SSH = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
BOOT_SECONDS = 900.0
SSH_FAILED = 255  # its own exit code
SPARE_CPU = "isolcpus=0"  # of three: why, says docs/development/emulation.md
# The image's QEMU, which is the same everywhere, with the rest of this machine that it needs.
IN_IMAGE = (
    *("bwrap", "--ro-bind", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"),
    *("--bind", "/var/tmp", "/var/tmp", "--die-with-parent"),
)


@dataclass(frozen=True)
class HostFiles:
    """What that host is made of."""

    disk: Path  # ext4, raw
    kernel: Path
    initrd: Path
    key: Path  # with which root logs in


def host_files(directory: Path, guests: dict[str, GuestFiles]) -> HostFiles:
    """Those in that directory, below /var/tmp, made if they are not there, with the files of these guests in GUESTS."""
    made = HostFiles(*(directory / f"owner.{end}" for end in ("raw", "vmlinuz", "initrd", "key")))
    if made.disk.exists():
        return made
    root = directory / "owner"
    if not made.key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made.key)], check=True)
    shutil.rmtree(root, ignore_errors=True)  # of an earlier attempt that was killed
    build = ["unshare", "--mount", "mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", str(root)]
    done = subprocess.run([*build, *archive()], capture_output=True, cwd="/", text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    subprocess.run(["sh", "-c", SET_UP, "sh", str(root), f"{made.key}.pub"], check=True)
    for kind, file in (("vmlinuz", made.kernel), ("initrd.img", made.initrd)):
        shutil.copy(next((root / "boot").glob(f"{kind}-*")), file)
    place = root / GUESTS.relative_to("/")
    place.mkdir()
    for files in guests.values():
        for file in (files.disk, files.kernel, files.initrd):
            subprocess.run(["cp", "--sparse=always", str(file), str(place)], check=True)
    being = made.disk.with_suffix(".being-made")
    subprocess.run(["truncate", "-s", SIZE, str(being)], check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(being)], check=True, capture_output=True)
    shutil.rmtree(root)
    being.rename(made.disk)
    return made


@dataclass(frozen=True)
class FarLibvirt(Libvirt):
    """The libvirt of that host. `directory`: there"""

    ssh: Path  # directory of ssh's configuration, here

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def words(self, *argv: str) -> list[str]:
        return ["ssh", "-F", str(self.ssh / "config"), ALIAS, shlex.join(argv)]

    def run(self, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """As here, but for a host that does not answer, of which nothing may be concluded."""
        done = super().run(*argv, given=given)
        assert done.returncode != SSH_FAILED, f"the owner's host: {done.stderr}"
        return done

    def vmtax(self, *argv: str) -> list[str]:
        """A command of a user whose ssh configuration knows this host."""
        home = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")  # where ssh looks, whatever HOME says
        home.mkdir(mode=0o700, exist_ok=True)
        return ["unshare", "--mount", "sh", "-c", WITH_SSH, "sh", str(self.ssh), str(home), *argv]


@contextlib.contextmanager
def owners_host(files: HostFiles, directory: Path) -> Iterator[FarLibvirt]:
    """The running host, on a disk that forgets what is written; `directory`: of this run."""
    ssh, port = directory / "ssh", free_port()
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text(
        f"Host {ALIAS}\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {files.key}\n"
        f" UserKnownHostsFile {ssh}/known_hosts\n StrictHostKeyChecking accept-new\n BatchMode yes\n LogLevel ERROR\n"
        " ServerAliveInterval 15\n ServerAliveCountMax 8\n"
    )
    image = current()
    assert image is not None, "vmtax image build"
    qemu = [*IN_IMAGE[:2], str(image.tree), *IN_IMAGE[2:], "qemu-system-x86_64", "-accel", "tcg,thread=multi"]
    qemu += ["-M", "q35", "-cpu", "EPYC-v1", "-smp", "3", "-m", str(MEMORY), "-nodefaults", "-no-user-config"]
    qemu += ["-display", "none", "-no-reboot", "-kernel", str(files.kernel), "-initrd", str(files.initrd)]
    qemu += ["-append", f"root=/dev/vda rw console=ttyS0 random.trust_cpu=on panic=-1 {SPARE_CPU}"]
    qemu += ["-serial", f"file:{directory}/console"]
    qemu += ["-drive", f"file={files.disk},format=raw,if=virtio,cache=unsafe,snapshot=on"]
    qemu += ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
    qemu += ["-device", "virtio-net-pci,netdev=net"]
    machine = subprocess.Popen(qemu, stdin=subprocess.DEVNULL, **QUIET)
    lv = FarLibvirt(Path("/srv/domains"), ssh)

    def is_up() -> bool:
        assert machine.poll() is None, f"its QEMU ended with {machine.returncode}"
        asked = lv.words("sh", "-c", "test -c /dev/kvm && virsh uri")
        return subprocess.run(asked, **QUIET).returncode == 0

    try:
        wait_until(is_up, f"the owner's host is up: {directory}/console", BOOT_SECONDS)
        lv.must("mkdir", "-p", str(lv.directory))
        yield lv
    finally:
        machine.send_signal(signal.SIGKILL)
        machine.wait()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
