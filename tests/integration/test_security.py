"""What others on the host, and readers of what is kept, must not get: looked at while a run goes on, and afterwards."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, booted, command_line, leftovers, qemu_of, under_way, vmtax
from tests.integration.test_faults import VM_ONLY
from vmtax.design.disk import DiskSettings
from vmtax.hypervisor import Credentials, Drive, GuestSpec, Qemu
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.cache import Image
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.meter.text import fields


def modes(directory: Path) -> dict[str, int]:
    """Permissions of everything below and of the directory itself."""
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in (directory, *directory.rglob("*"))}


@pytest.mark.parametrize("own", [True, False], ids=["the host's", "the image's"])
def test_a_qemu_that_root_starts_reaches_no_more_than_its_guest(
    own: bool, shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec, placed: Placed, tmp_path: Path
) -> None:
    qemu = Qemu.probe(shared_local) if own else Qemu.of_image(shared_local, str(placed.tree))
    disk = tmp_path / "a, b.raw"
    disk.write_bytes(b"\0" * 2**20)
    disks = (Drive(str(disk), DiskSettings(iothread=True)),)
    small = replace(spec, hypervisor=qemu, vcpus=1, disks=disks)
    with booted(shared_local, small, credentials, shared_local) as guest:
        guest.machine.run("dd", "if=/dev/urandom", f"of={small.device()}", "bs=64k", "count=16", "conv=fsync")
        pid = qemu_of(shared_local.token)
        status = fields(Path(f"/proc/{pid}/status").read_text())
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(qemu.user)} and qemu.user > 2**30
        assert status["CapEff"] == status["CapPrm"] == "0" * 16 and status["Seccomp"] == "2"
        if not own:
            assert status["NoNewPrivs"] == "1"
            assert {path.name for path in Path(f"/proc/{pid}/root").iterdir()} == {
                *("usr", "bin", "lib", "lib64", "dev", "proc", "sys", "tmp"),
                *(Path(path).parts[1] for path in (spec.root, str(disk), str(shared_local.scratch))),
            }
            assert not Path(f"/proc/{pid}/root/usr/bin/bwrap").samefile("/usr/bin/bwrap"), "that is the image's /usr"
            assert [path.name for path in Path(f"/proc/{pid}/root{tmp_path}").iterdir()] == [disk.name]
        guest.process.stop()
        assert not Path(f"/proc/{pid}").exists(), "it is gone with what started it"
    assert disk.read_bytes().strip(b"\0")


def processes(token: str) -> set[str]:
    return {entry.partition(":")[0] for entry in leftovers(token) if entry[0].isdigit()}


def listening(pids: set[str]) -> list[str]:
    """The addresses at which these processes listen."""
    sockets = subprocess.run(["ss", "-H", "-ltunp"], capture_output=True, text=True, check=True).stdout
    return [line.split()[4] for line in sockets.splitlines() if set(re.findall(r"pid=(\d+)", line)) & pids]


def test_sockets_keys_and_files_are_private(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    (tmp_path / "p.yaml").write_text(VM_ONLY.replace("{min: 2, max: 2}", "{min: 1, max: 1}"))
    with under_way("run", "p.yaml", "--yes", "--emulate", "-o", "r.html", directory=tmp_path, trials=2) as (
        process,
        token,
    ):
        while not (ours := listening(pids := processes(token))):  # the guest's ssh port, except between two guests
            assert process.poll() is None
        assert all(address.startswith(("127.0.0.1:", "[::1]:")) for address in ours)

        scratch = Path(f"/tmp/vmtax-{token}")
        (path,) = scratch.glob("keys-*/key")
        key = path.read_text()
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700, "no other user can read what is in it"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        commands = [command_line(pid) for pid in pids]
        assert any("qemu-system" in command for command in commands)
        assert not any(key.splitlines()[1] in command for command in commands)
        assert all(mode & 0o077 == 0 for mode in modes(tmp_path / "state").values())
        assert all(mode & 0o077 == 0 for mode in modes(tmp_path / "data").values())
        assert process.wait(HANGS) == 0
    assert not scratch.exists()
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    raw = subprocess.run(["zcat", *(str(path) for path in kept if path.suffix == ".gz")], capture_output=True).stdout
    secret = key.splitlines()[1].encode()
    assert len(secret) > 60 and secret not in raw
    assert not [path for path in kept if secret in path.read_bytes()]
    assert "PRIVATE KEY" not in vmtax("show", "--json", directory=tmp_path).stdout


WRITE = """echo >> "/proc/$1/root$2"
mount -t tmpfs none /tmp
mknod /tmp/disk b 7 0
grep CapEff: /proc/self/status
grep -o "^ *[a-z0-9]*:" /proc/net/dev
ls "$2"
"""


def test_a_workload_on_the_host_reaches_nothing_else(
    shared_local: LocalMachine, placed: Placed, tmp_path: Path
) -> None:
    """As root, too: through /proc, by a mount, by a device."""
    assert placed.tree is not None
    victim = tmp_path / "victim"
    done = shared_local.try_run(
        *enter_tree(placed.tree, root=True), "--", "sh", "-c", WRITE, "sh", str(os.getpid()), str(victim)
    )
    assert not victim.exists()
    assert done.stdout.split() == ["CapEff:", "0" * 16, "lo:"], "no capability, and no network"
    for refused in ("cannot create", "mount: /tmp: ", "mknod: /tmp/disk: ", "ls: cannot access"):
        assert refused in done.stderr
