"""What a lab is made of, what is refused, and what its records say."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO
from unittest.mock import MagicMock, patch

import pytest
from typer.testing import CliRunner

from tests.sample_lab import SOFTWARE, home, made, quiet, saved
from vmtax.cli import app
from vmtax.core.errors import BadInput
from vmtax.hypervisor import GuestSpec, Lasting, Nic, Qemu
from vmtax.hypervisor.qemu.argv import kernel_arguments
from vmtax.hypervisor.qemu.boot import _connected
from vmtax.hypervisor.qemu.qmp import QmpError
from vmtax.lab.end import remove
from vmtax.lab.home import Lab, LabError, NoSuchLab, Up, held, lab, labs, labs_directory, write
from vmtax.lab.spec import Size, disk_bytes, disk_files, lab_spec, own_address, with_addresses
from vmtax.lab.start import FORGET, Wish, _Start, start
from vmtax.lab.write_logs import spare_logs
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshRoute
from vmtax.testbed.host import hosts

__all__ = ["home"]
ANY = MagicMock()  # what is not looked at
GOLDEN = Path(__file__).parent.parent / "golden" / "argv"
QEMU = Qemu(("qemu-system-x86_64",), "10.0", "", tree="/image/tree", has_sandbox=True, user=1879048199)
BASE = GuestSpec("", 1, 2**29, "tcg", QEMU, "/i/vmlinux", "/i/initrd", "/i/root.erofs")
DEFAULT = Size()
ZFS = ("/z/pack.erofs",)


def blue(base: GuestSpec = BASE, size: Size = DEFAULT, taps: tuple[str, str] | None = None) -> GuestSpec:
    return lab_spec(base, "blue", size, PurePosixPath("/labs/a,b"), PurePosixPath("/r"), taps)


def argv_of(spec: GuestSpec) -> tuple[str, ...]:
    assert spec.lasting is not None
    return QEMU.command_line(spec, spec.lasting.runtime / "initrd", spec.lasting.console)


def no_room(path: Path, record: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def after(argv: tuple[str, ...], option: str) -> list[str]:
    return [argv[number + 1] for number, word in enumerate(argv) if word == option]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("lab", blue()),
        ("lab-tap-zfs-nvme", blue(replace(BASE, accelerator="kvm", layers=ZFS), Size(nvme=True), ("one", "two"))),
        ("lab-saved", blue(replace(BASE, layers=ZFS, incoming="/labs/a,b/saved/state"))),
    ],
)
def test_the_command_line_is_the_golden_one(name: str, spec: GuestSpec) -> None:
    assert "\n".join(argv_of(spec)) + "\n" == (GOLDEN / f"{name}.txt").read_text()


def test_two_cpus_of_a_lab_are_a_core_if_that_is_asked_for() -> None:
    assert blue().settings.topology == "cores"
    assert after(argv_of(blue(size=Size(vcpus=4, smt=True))), "-smp") == ["6,sockets=1,cores=3,threads=2"]


def test_disks_keep_their_names_whether_there_is_a_layer_or_not() -> None:
    argv = argv_of(blue())
    drives = [entry.rpartition("file=")[2] for entry in after(argv, "-drive")]
    assert drives == [
        "/i/root.erofs",
        *(f"/labs/a,,b/{name}.raw" for name in ("work", *(f"spare{n}" for n in range(1, 5)))),
    ]
    assert "vmtax.layer" not in kernel_arguments(blue())
    size = Size(nvme=True)
    more = blue(replace(BASE, layers=ZFS), size)
    assert [entry.rpartition("file=")[2] for entry in after(argv_of(more), "-drive")][:6] == drives
    assert "vmtax.lab=blue vmtax.layer=/dev/vdg" in kernel_arguments(more)
    assert len(disk_bytes(size)) == len(disk_files(PurePosixPath("/"), size)) == len(more.disks)


def test_labs_of_one_network_have_other_addresses() -> None:
    own = blue(taps=("one", "two"))
    first, second = (with_addresses(own, token) for token in ("00ff3412", "ff003412"))
    addresses = [card.mac for spec in (own, first, second) for card in spec.cards if isinstance(card, Nic)]
    assert len(set(addresses)) == 6 and "52:54:00:77:00:ff" in addresses and "52:54:00:78:ff:00" in addresses
    assert (own_address("00ff"), own_address("ff00")) == ("10.78.0.100/24", "10.78.0.227/24")


def test_a_lab_is_reached_from_the_launching_machine_only() -> None:
    for spec in (blue(), blue(taps=("one", "two"))):
        netdevs = after(argv_of(spec), "-netdev")
        assert netdevs[0] == "user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"
        assert all("restrict=on" in entry or entry.startswith("tap,") for entry in netdevs)
    assert [entry.split(",")[2] for entry in netdevs[1:]] == ["ifname=one", "ifname=two"]


def test_commas_in_paths() -> None:
    argv = argv_of(blue(replace(BASE, incoming="/labs/a,b/saved/state")))
    # QEMU splits -drive and -qmp at commas, but neither of these.
    assert after(argv, "-serial") == ["file:/labs/a,b/console.log"]
    assert after(argv, "-incoming") == ["file:/labs/a,b/saved/state"]


def test_a_power_cut_takes_the_page_cache() -> None:
    writable = [entry for entry in after(argv_of(blue()), "-drive") if "readonly" not in entry]
    assert writable and all("cache=none" in entry for entry in writable)


def test_writes_to_spare_disks_alone_are_logged() -> None:
    spec = lab_spec(
        BASE, "blue", Size(spares=2, nvme=True), PurePosixPath("/labs/a,b"), PurePosixPath("/r"), None, "0123456789"
    )
    logs = {disk.name: disk.log for disk in spec.disks}
    assert logs == {
        "work": "",
        "spare1": "/labs/a,b/spare1-01234567.writes",
        "spare2": "/labs/a,b/spare2-01234567.writes",
        "nvme": "",
    }
    drives = [entry for entry in after(argv_of(spec), "-drive") if "blklogwrites" in entry]
    assert len(drives) == 2 and "file.file.filename=/labs/a,,b/spare1.raw" in drives[0]
    log = "cache.direct=off,file.log.cache.no-flush=on,file.log.aio=threads,file.log.filename"
    assert drives[0].endswith(f"file.log.{log}=/labs/a,,b/spare1-01234567.writes")


def test_a_lab_that_is_off_has_no_logs_and_one_that_is_up_has_them_where_it_was_asked_to() -> None:
    one, token = made(size=Size(spares=2)), "0123456789abcdef"
    assert spare_logs(one) == []
    path = one.directory / "spare1-01234567.writes"
    path.write_bytes(b"")
    up = Up(token, os.getpid(), 2222, "/k/key", "/k/known", "/r/qmp", 0.0, 5.0, 7.0, "because", None)
    for logs in (False, True):
        write(one.up_file, replace(up, logs_writes=logs))
        with patch("vmtax.lab.home.is_marked", return_value=True):
            found = spare_logs(one)
        assert [each.serial for each in found] == (["vmtax-spare1", "vmtax-spare2"] if logs else [])
    assert found[0].disk == one.disks[1] and found[0].log == path and found[0].size == Size().spare_bytes


@pytest.mark.parametrize("name", ["Big", "a b", "-x", "a" * 21, "../x", "a/b"])
def test_names_that_no_lab_can_have(name: str) -> None:
    with pytest.raises(NoSuchLab, match="cannot be a lab's name"):
        lab(name)


def test_a_lab_that_is_not_there_or_off_says_how_to_have_it() -> None:
    with pytest.raises(BadInput, match="there is no lab lab; there are none yet; make it: vmtax lab start lab"):
        hosts.route("lab")
    made()
    with pytest.raises(BadInput, match="there is no lab red; there are: blue; make it: vmtax lab start red"):
        hosts.route("lab:red")
    with pytest.raises(LabError, match="lab blue is off: vmtax lab start blue"):
        hosts.route("lab:blue")


def up_record(one: Lab, pid: int, token: str) -> None:
    write(one.up_file, Up(token, pid, 2222, "/k/key", "/k/known", "/r/qmp", 0.0, 5.0, 7.0, "because", None))


def test_a_record_of_a_dead_lab_is_no_lab_that_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    up_record(one, os.getpid(), "another's process")
    assert one.up() is None
    # A process's environment, as the kernel shows it, is that of its start.
    mark = Path("/proc/self/environ").read_bytes().split(b"\0")[0].decode()
    monkeypatch.setattr("vmtax.machine.processes.MARK", mark.partition("=")[0])
    up_record(one, os.getpid(), mark.partition("=")[2])
    assert one.up() is not None
    found = hosts.route("lab:blue")
    assert found.destination == "root@127.0.0.1" and found.options[-2:] == ("-p", "2222") and "/k/key" in found.options
    with pytest.raises(LabError, match="lab blue is up already: vmtax lab ssh blue"):
        start(one, Wish(), lambda event: None)


@pytest.mark.parametrize("text", ["{", pytest.param(10**5 * "[", id="deep")])
def test_a_lab_whose_record_of_being_up_is_damaged_is_not_taken_for_off(text: str) -> None:
    one = made()
    one.up_file.write_text(text)
    with pytest.raises(LabError, match=r"up\.json: damaged .*; end its QEMU \(pgrep -f vmtax-lab-blue\)"):
        remove(one)
    assert one.exists


def test_disks_that_somebody_has_open_are_left_alone() -> None:
    one = made()
    disk = one.directory / "work.raw"
    with disk.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        for action in (lambda: remove(one), lambda: start(one, Wish(), quiet)):
            with pytest.raises(LabError, match=r"work\.raw is in use by another process"):
                action()
    assert one.exists


def test_one_command_at_a_time_handles_a_lab() -> None:
    one = made()
    with held(one), pytest.raises(LabError, match="is being started, ended or saved by another command"), held(one):
        pass


def test_what_a_start_refuses_before_it_sets_anything_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    with pytest.raises(LabError, match="lab blue keeps its disks"):
        start(one, Wish(spares=2), quiet)
    with pytest.raises(NoSuchLab, match="lab blue was never saved: vmtax lab save blue"):
        start(lab("red"), Wish(), quiet, source=one)
    with pytest.raises(NoSuchLab, match="there is no lab yellow"):
        start(lab("red"), Wish(), quiet, source=lab("yellow"))
    saved(one)
    for wish in (Wish(vcpus=1), Wish(spares=2)):
        with pytest.raises(LabError, match=r"has its memory, CPUs and disks: leave out .*--spares.* with --from blue"):
            start(lab("red"), wish, quiet, source=one)
    (one.saved / "key").unlink()
    with pytest.raises(LabError, match="saved: key missing; save lab blue again"):
        start(lab("red"), Wish(), quiet, source=one)
    monkeypatch.setattr("vmtax.lab.memory.available_memory", lambda machine: 2**30)
    with pytest.raises(LabError, match=r"1\.0 GiB of memory are available, the lab takes 4\.4 GiB: end something, or"):
        start(lab("red"), Wish(), quiet)
    assert [found.name for found in labs()] == ["blue"], "what could not be started is not there"


def test_a_damaged_record_is_reported() -> None:
    one = made()
    (one.directory / "lab.json").write_text(json.dumps({"size": {}}))
    with pytest.raises(LabError, match=r"lab\.json: damaged .*; remove the lab: vmtax lab remove blue"):
        one.record()


def test_labs_of_another_user_are_neither_none_nor_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(LabError, match="/labs: Permission denied; a lab is for the user alone who made it"):
        labs()
    monkeypatch.setattr(Path, "read_text", forbidden)
    with pytest.raises(LabError, match=r"/lab\.json: Permission denied; a lab is for the user alone"):
        lab("blue").record()


def test_a_damaged_lab_is_not_in_the_way_of_others_and_can_be_removed(home: Path) -> None:
    one, other = made(), made("red")
    (one.directory / "lab.json").write_text("")
    assert [found.name for found in labs()] == ["blue", "red"]
    remove(one)
    assert labs() == [other] and not one.directory.exists()
    assert sorted(path.name for path in one.directory.parent.iterdir()) == ["red"]
    with pytest.raises(NoSuchLab):
        remove(one)


def test_a_lock_that_its_holder_removed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    one, path, flock = lab("blue"), labs_directory() / ".blue.lock", fcntl.flock
    with held(one):
        assert path.exists()
    assert not path.exists(), "of a lab that is not there nothing stays"

    def after_its_end(file: IO[str], how: int) -> None:
        """Between our opening and our locking its holder ends."""
        patch.undo()
        path.unlink()
        flock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr("vmtax.lab.home.fcntl.flock", after_its_end)
        with held(one):
            assert path.exists(), "what others will lock"


def test_a_lab_from_a_saved_state_replaces_no_other() -> None:
    one, other = saved(made()), made("red")
    with pytest.raises(LabError, match="lab red has disks of its own: --from blue takes a name that is free"):
        start(other, Wish(), quiet, source=one)
    with held(one), pytest.raises(LabError, match="lab blue is being started, ended or saved by another command"):
        start(lab("green"), Wish(), quiet, source=one)
    with held(one, shared=True), held(one, shared=True):
        pass  # two may begin there at once


def test_a_start_that_is_tidied_up_late_does_not_take_the_next_one_s_record() -> None:
    one = made()
    up_record(one, 1, "the next")
    for token, left in (("an older", True), ("the next", False), ("the next", False)):
        assert subprocess.run((*FORGET, token, str(one.up_file)), capture_output=True).returncode == 0
        assert one.up_file.exists() == left


def test_a_qemu_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    local = LocalMachine()
    process = local.start("true")
    process.wait(5.0)
    began = time.monotonic()
    with pytest.raises(QmpError, match="No such file"):
        _connected(Lasting(*[PurePosixPath(tmp_path)] * 3), process, contextlib.ExitStack())
    assert time.monotonic() - began < 5
    local.close()


def test_what_a_saved_state_misses_is_named() -> None:
    other = replace(SOFTWARE, qemu="10.1.0", zfs="2.3.2")
    assert other.differences(SOFTWARE) == ["QEMU 10.1.0, not 10.0.2", "ZFS 2.3.2, not none"]
    assert SOFTWARE.differences(SOFTWARE) == []
    assert SOFTWARE.differences_from_saved(SOFTWARE) == []
    newer = replace(SOFTWARE, additional_cpu=True)
    assert newer.differences_from_saved(SOFTWARE) == ["room for another CPU, not none"]
    assert SOFTWARE.differences_from_saved(newer) == ["no room for another CPU"]
    assert newer.differences(SOFTWARE) == [], "disks do not mind"


def test_a_saved_state_is_not_resumed_over_another_build_of_the_same_zfs() -> None:
    """`vmtax image zfs --again` makes another file of the same version: over it a saved kernel would read nonsense."""
    one, again = (replace(SOFTWARE, zfs="2.3.2-2", zfs_build=digit * 64) for digit in "ab")
    assert again.differences(one) == ["build bbbbbbbbbbbb of ZFS 2.3.2-2, not aaaaaaaaaaaa"]
    assert one.differences(one) == [] == one.differences(replace(one, zfs_build=None)), "an older record names none"
    assert replace(one, zfs="2.3.3-1", zfs_build="c").differences(one) == ["ZFS 2.3.3-1, not 2.3.2-2"]
    pack, rest = (
        SimpleNamespace(version="2.3.2-2", digest="a" * 64),
        {"base": ANY, "image": ANY, "accelerator": ANY, "size": Size()},
    )
    assert _Start.software.fget(SimpleNamespace(pack=pack, **rest)).zfs_build == "a" * 64
    old = made()
    record = json.loads((old.directory / "lab.json").read_text())
    del record["software"]["zfs_build"]
    (old.directory / "lab.json").write_text(json.dumps(record))
    assert old.record().software == SOFTWARE


@pytest.mark.parametrize(
    ("argv", "command"),
    [(["ls", "-h", "/root"], ["ls", "-h", "/root"]), (["--", "ls", "-h"], ["ls", "-h"]), ([], None)],
)
def test_what_is_run_in_a_lab_is_left_as_it_is(
    argv: list[str], command: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr("vmtax.lab.reach.route", lambda one: SshRoute("root@there", ("-p", "1")))
    monkeypatch.setattr("os.execvp", lambda file, words: ran.append(words))
    assert CliRunner().invoke(app, ["lab", "ssh", "blue", *argv]).exit_code == 0
    assert ran == [["ssh", "-p", "1", "root@there", *(["--", *command] if command else [])]]


def test_arguments_of_one_start_stand_beside_those_of_every_lab() -> None:
    (line,) = after(argv_of(blue(replace(BASE, kernel_words=("mitigations=off", "nosmt")))), "-append")
    assert "iommu=pt vmtax.lab=blue mitigations=off nosmt" in line
