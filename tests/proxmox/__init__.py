"""A stand-in for a Proxmox VE node: `qm`, `pvesh` and `pvesm` that run real QEMUs with real guest agents.

It proves our side only. What it prints has the shapes of the manual qm(1) and of Proxmox's source, qemu-server 9.2:
CLI/qm.pm (status, config, guest exec), API2/Qemu.pm (status/current, monitor), QemuServer.pm (vmstatus).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).parent / "node.py"
CONFIG = """\
agent: 1
args: -kernel {kernel} -initrd {initrd} -append "root=/dev/{root} rw console=ttyS0 net.ifnames=0"
boot: order={disk}
cores: 2
cpu: max
kvm: 0
memory: 768
name: {name}
numa: 0
ostype: l26
scsihw: {scsihw}
serial0: socket
smbios1: uuid={uuid}
sockets: 1
vmgenid: c773c261-d800-4348-9f5d-167fadd53cf8
{disk}: local:{vmid}/vm-{vmid}-disk-0.raw,{options}size=2G
"""


@dataclass(frozen=True)
class Node:
    """One node with its VMs in a directory."""

    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """In which `qm` and its like are found, and so by vmtax."""
        return {**os.environ, "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"}

    def qm(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(["qm", *words], env=self.environment, capture_output=True, text=True)
        if check and done.returncode:
            raise AssertionError(f"qm {' '.join(words)}: {done.stderr}")
        return done.stdout

    def define(self, vmid: str, image: Path, **words: object) -> Path:
        """A VM with a copy of that image as its disk. `words`: of CONFIG. Returns its configuration."""
        images = self.directory / "images" / vmid
        images.mkdir(parents=True)
        subprocess.run(["cp", "--sparse=always", str(image), str(images / f"vm-{vmid}-disk-0.raw")], check=True)
        known = {
            **{"vmid": vmid, "name": f"web{vmid}", "disk": "scsi0", "root": "sda", "scsihw": "virtio-scsi-single"},
            **{"options": "", "uuid": f"7b10d7af-b932-4c66-b2c3-{int(vmid):012d}"},
        }
        file = self.directory / "etc" / f"{vmid}.conf"
        file.write_text(CONFIG.format(**(known | words)))
        return file


@contextlib.contextmanager
def proxmox_node(directory: Path) -> Iterator[Node]:
    """A node without VMs; those that run at the end are stopped."""
    for name in ("bin", "etc", "run", "images"):
        (directory / name).mkdir()
    for name in ("qm", "pvesh", "pvesm"):
        file = directory / "bin" / name
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -I {PROGRAM} {directory} {name} "$@"\n')
        file.chmod(0o755)
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu, "a QEMU is installed"
    (directory / "kvm").symlink_to(qemu)  # Proxmox's has this name, and so has the process
    node = Node(directory)
    try:
        yield node
    finally:
        for file in (directory / "etc").glob("*.conf"):
            node.qm("stop", file.stem, check=False)
