"""What vmtax asks of a host's own programs, asked of those of an old Debian."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtax.core.machines import DEFAULT_TIMEOUT, Outcome
from vmtax.machine import tools
from vmtax.machine.guarded import guard_source
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.meter import clock, ledger, moment, pressure
from vmtax.meter.disk import ITSELF, LSBLK, disk_facts
from vmtax.storage.file import NoSuchPlace, StorageError
from vmtax.storage.ground import refuse_used

SUITE = "bullseye"  # Debian 11, as below Proxmox VE 7: util-linux 2.36, bubblewrap 0.4, Python 3.9
PACKAGES = "iproute2,util-linux,fdisk,mount,kmod,bubblewrap,python3,zstd"
ENTER = (
    *("unshare", "--mount", "sh", "-c"),
    'root=$1; shift; for part in proc sys dev; do mount --rbind "/$part" "$root/$part"; done; exec chroot "$root" "$@"',
    "sh",
)


class Inside(LocalMachine):
    """This host with the programs of another root."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        done = super().try_run(*ENTER, str(self.root), *argv, input=input, timeout=timeout)
        return Outcome(self.path, argv, done.code, done.stdout, done.stderr, done.seconds, done.timed_out)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    root = tmp_path_factory.mktemp("userland") / SUITE
    made = ("unshare", "--mount", "mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root))
    subprocess.run(made, check=True, capture_output=True)
    machine = Inside(root)
    yield machine
    machine.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "disk"
    with file.open("wb") as empty:
        empty.truncate(2**26)
    made = subprocess.run(("losetup", "--find", "--show", str(file)), check=True, capture_output=True, text=True)
    device = made.stdout.strip()
    yield device
    subprocess.run(("losetup", "--detach", device), check=True)


@pytest.mark.machines
def test_an_empty_device_is_taken_and_one_that_holds_something_is_not(old: Inside, loop: str) -> None:
    refuse_used(old, loop, erase=False)
    old.run("sfdisk", "-q", "--lock", "--wipe=always", loop, input="label: gpt\nsize=1MiB\n")
    with pytest.raises(StorageError, match="holds something"):
        refuse_used(old, loop, erase=False)
    with pytest.raises(NoSuchPlace, match=r"is no block device \(lsblk: /dev/null: not a block device\)"):
        refuse_used(old, "/dev/null", erase=False)
    assert old.try_run(*LSBLK, loop).ok and old.try_run(*ITSELF, loop).ok


@pytest.mark.machines
def test_what_is_read_of_every_host_is_understood(old: Inside) -> None:
    assert disk_facts(old, "/dev")["file_system"] == "devtmpfs"
    for command in (clock.COMMAND, ledger.COMMAND, pressure.COMMAND):
        assert moment.parse(old.try_run(*command).stdout) is not None, command
    compiled = old.try_run(
        PYTHON, *ISOLATED, "import sys; compile(sys.stdin.read(), '-', 'exec')", input=guard_source()
    )
    assert compiled.ok, compiled.stderr
    assert old.run("ip", "-d", "-j", "link").startswith("[{")


@pytest.mark.machines
def test_what_is_too_old_there_is_named_and_really_is(old: Inside) -> None:
    assert tools.why_not(old, tools.of(tools.HOST, tools.COPY, tools.NETWORK, tools.CARDS, tools.DEVICES)) == ""
    assert tools.why_not(old, tools.of(tools.BUILD)).startswith("bwrap is too old (bubblewrap 0.4.1)")
    assert "Unknown option --size" in old.try_run("bwrap", "--size", "4096", "--tmpfs", "/tmp", "true").stderr
