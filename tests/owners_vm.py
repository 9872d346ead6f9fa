"""A VM as its owner has it: a Debian of its own with systemd and its own kernel, run by a libvirt that only we see.

No image of vmtax is in it. The libvirt is a real one, in a mount namespace with its own /run, /etc/libvirt and a /dev
without KVM, so that it emulates and nobody else's domains are touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

PACKAGES = "linux-image-cloud-amd64,systemd-sysv,udev,qemu-guest-agent,dbus,kmod,zstd,initramfs-tools"
DAEMON = r"""
set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
for each in null zero full random urandom tty ptmx; do cp -a /dev/$each /mnt/; done
mkdir -p /mnt/net /mnt/pts /mnt/shm /mnt/mqueue /mnt/hugepages "$1/run" "$1/etc"
[ ! -e /dev/net/tun ] || cp -a /dev/net/tun /mnt/net/
ln -s /proc/self/fd /mnt/fd
mount --bind /dev/pts /mnt/pts
mount --move /mnt /dev
mount --bind "$1/run" /run
mount --bind "$1/etc" /etc/libvirt
mkdir -p /run/libvirt /run/lock /run/dbus
for each in passwd group; do  # libvirt wants a user of its own, which it does not use here
    cp /etc/$each "$1/etc/$each"
    grep -q '^libvirt-qemu:' /etc/$each && continue
    case $each in passwd) rest=64055:64055:::/bin/false ;; group) rest=64055: ;; esac
    echo "libvirt-qemu:x:$rest" >> "$1/etc/$each"
    mount --bind "$1/etc/$each" /etc/$each
done
exec libvirtd -f "$1/etc/libvirtd.conf" -p "$1/run/libvirtd.pid"
"""
# No other user, no cgroups and no security driver: none of them works in a container.
QEMU_CONF = """\
user = "root"
namespaces = []
security_driver = "none"
cgroup_controllers = []
remember_owner = 0
stdio_handler = "file"
"""
DOMAIN = """\
<domain type='{kind}'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>{vcpus}</vcpu>
  <os><type arch='x86_64' machine='{machine}'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd>
    <cmdline>{words} rw console=ttyS0 net.ifnames=0</cmdline></os>
  {iothreads}<features><acpi/><apic/></features>
  <cpu mode='{cpu}'/>
  <devices>
    <emulator>{qemu}</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='raw'{driver}/><source file='{disk}'/>
      <target dev='{root}' bus='{bus}'/></disk>{more}
    <serial type='file'><source path='{console}'/><target port='0'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <memballoon model='virtio'/>
  </devices>
</domain>
"""
# The first process of a guest without systemd: udev names the agent's port.
START = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=755 run /run
/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add
modprobe virtio_console
while :; do
    qemu-ga --method=virtio-serial --path=/dev/virtio-ports/org.qemu.guest_agent.0
    sleep 1
done
"""
WITHOUT_SYSTEMD = "without-systemd.raw"  # the disk of a guest that starts its agent and nothing else
LABEL = "owners"  # of its file system, which is found whatever its disk is called
OF_START = f"root=LABEL={LABEL} init=/usr/sbin/start"  # words for its kernel
BOOT_SECONDS = 600.0  # an emulated guest beside other work


@dataclass(frozen=True)
class GuestFiles:
    """What a VM of an owner is made of."""

    disk: Path  # ext4, raw
    kernel: Path
    initrd: Path


def guest_files(suite: str, directory: Path) -> GuestFiles:
    """Those in that directory, made if they are not there."""
    files = _files(suite, directory)
    is_made = all(each.exists() for each in (files.disk, files.kernel, files.initrd))
    return files if is_made else make_guest(suite, directory)


def _files(suite: str, directory: Path) -> GuestFiles:
    return GuestFiles(*(directory / f"{suite}.{end}" for end in ("raw", "vmlinuz", "initrd")))


def make_guest(suite: str, directory: Path, more: str = "", run: str = "") -> GuestFiles:
    """A Debian of that suite. `more`: further packages, ",python3"; `run`: a shell command in its root at the end."""
    root, made = directory / suite, _files(suite, directory)
    build = ["unshare", "--mount", "mmdebstrap", "--variant=minbase", f"--include={PACKAGES}{more}", suite, str(root)]
    done = subprocess.run([*build, *archive()], capture_output=True, cwd="/", text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (root / "etc/fstab").write_text("")
    (root / "etc/hostname").write_text(f"{suite}\n")
    if run:
        subprocess.run(["chroot", str(root), "sh", "-c", run], check=True, capture_output=True)
    for kind, file in (("vmlinuz", made.kernel), ("initrd.img", made.initrd)):
        shutil.copy(next((root / "boot").glob(f"{kind}-*")), file)
    subprocess.run(["truncate", "-s", "2G", str(made.disk)], check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(made.disk)], check=True, capture_output=True)
    shutil.rmtree(root)
    return made


def without_systemd(files: GuestFiles, directory: Path) -> GuestFiles:
    """The same guest, which starts its agent and nothing else: soon enough to be booted often, with words OF_START."""
    disk, start = directory / WITHOUT_SYSTEMD, directory / "start"
    if not disk.exists():
        start.write_text(START)
        subprocess.run(["cp", "--sparse=always", str(files.disk), str(disk)], check=True)
        subprocess.run(["tune2fs", "-L", LABEL, str(disk)], check=True, capture_output=True)
        changes = f"write {start} /usr/sbin/start\nset_inode_field /usr/sbin/start mode 0100755\n"
        subprocess.run(["debugfs", "-w", "-f", "-", str(disk)], check=True, capture_output=True, input=changes.encode())
    return replace(files, disk=disk)


def archive() -> list[str]:
    """Where this host has its packages from, without security updates, which old suites' mirrors may lack."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    return [uri for uri in dict.fromkeys(found) if "security" not in uri][:1]


@dataclass(frozen=True)
class Libvirt:
    """A libvirt of our own."""

    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """In which virsh, and so vmtax, reach it."""
        socket = self.directory / "run/libvirt/libvirt-sock"
        return {**os.environ, "LIBVIRT_DEFAULT_URI": f"qemu+unix:///system?socket={socket}"}

    def words(self, *argv: str) -> list[str]:
        """The command that runs this on its host."""
        return [*argv]

    def run(self, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A command on its host."""
        return subprocess.run(self.words(*argv), env=self.environment, capture_output=True, text=True, input=given)

    def must(self, *argv: str, given: str = "") -> str:
        """What a command on its host prints."""
        done = self.run(*argv, given=given)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
        return done.stdout

    def files(self, pattern: str) -> frozenset[str]:
        """Those of its host whose paths are like that."""
        return frozenset(self.run("sh", "-c", f"ls -d {pattern}").stdout.split())

    def vmtax(self, *argv: str) -> list[str]:
        """The command that runs vmtax for this libvirt."""
        return [*argv]

    def virsh(self, *words: str, check: bool = True) -> str:
        done = self.run("virsh", *words)
        if check and done.returncode:
            raise AssertionError(f"virsh {' '.join(words)}: {done.stderr}")
        return done.stdout

    def define(self, name: str, files: GuestFiles, **changes: object) -> None:
        """A domain on a copy of these files. `changes`: of DOMAIN's words."""
        disk = self.directory / f"{name}.raw"
        self.must("cp", "--sparse=always", str(files.disk), str(disk))
        words: dict[str, object] = {
            **{"kind": "qemu", "cpu": "maximum"},
            **{"name": name, "memory": 768, "vcpus": 2, "machine": "q35", "root": "vda", "bus": "virtio"},
            **{"kernel": files.kernel, "initrd": files.initrd, "disk": disk, "driver": "", "more": ""},
            "qemu": shutil.which("qemu-system-x86_64"),
            "console": self.directory / f"{name}.console",
            "words": f"root=/dev/{changes.get('root', 'vda')}",
            "iothreads": "<iothreads>1</iothreads>" if "iothread=" in str(changes.get("driver")) else "",
        }
        text = self.directory / f"{name}.xml"
        self.must("tee", str(text), given=DOMAIN.format(**(words | changes)))
        self.virsh("define", str(text))

    @contextlib.contextmanager
    def domain(self, name: str, files: GuestFiles, **changes: object) -> Iterator[str]:
        """A running domain on a copy of these files, whose agent answers. `changes`: of DOMAIN's words."""
        self.define(name, files, **changes)
        try:
            self.virsh("start", name)
            wait_until(lambda: self.agent(name, "guest-ping") is not None, f"the agent of {name} answers")
            yield name
        finally:
            self.virsh("destroy", name, check=False)
            self.virsh("undefine", name, check=False)

    def agent(self, name: str, command: str, **arguments: object) -> dict[str, object] | None:
        """The agent's answer; None if it does not answer."""
        said = self.virsh(
            "qemu-agent-command", name, json.dumps({"execute": command, "arguments": arguments}), check=False
        )
        return json.loads(said)["return"] if said.strip() else None

    def shell(self, name: str, script: str) -> int:
        """The exit status of a shell script in the guest."""
        arguments = {"path": "/bin/sh", "arg": ["-c", script], "capture-output": False}
        started = self.agent(name, "guest-exec", **arguments)
        assert started, "the agent starts a program"
        found: list[dict[str, object]] = []

        def ended() -> bool:
            status = self.agent(name, "guest-exec-status", pid=started["pid"])
            found.extend([status] if status and status["exited"] else [])
            return bool(found)

        wait_until(ended, f"{script} ends in the guest")
        code = found[0].get("exitcode", 128)
        assert isinstance(code, int)
        return code


def wait_until(holds: Callable[[], bool], what: str, seconds: float = BOOT_SECONDS) -> None:
    """Raises AssertionError if that is not so in time."""
    limit = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.25)


@contextlib.contextmanager
def libvirt(directory: Path) -> Iterator[Libvirt]:
    """A libvirt that keeps everything in that directory, which QEMU's user must be able to read."""
    (directory / "etc").mkdir()
    (directory / "etc/qemu.conf").write_text(QEMU_CONF)
    (directory / "etc/libvirtd.conf").write_text('auth_unix_rw = "none"\nauth_unix_ro = "none"\n')
    with (directory / "libvirtd.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", DAEMON, "sh", str(directory)],
            **{"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "start_new_session": True},  # type: ignore[call-overload]
        )
    made = Libvirt(directory)
    try:
        wait_until(lambda: bool(made.virsh("uri", check=False).strip()), "libvirtd answers", 60.0)
        yield made
    finally:
        for name in made.virsh("list", "--name", check=False).split():
            made.virsh("destroy", name, check=False)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
