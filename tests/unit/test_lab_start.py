"""What a start of a lab leaves where it fails, is interrupted or killed, and what it bears."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from unittest.mock import MagicMock, patch

import pytest

from tests.sample_lab import SIZE, SOFTWARE, home, made, quiet, saved
from vmtax.hypervisor import BootFailed, BootPatience, Credentials, GuestSpec, Qemu
from vmtax.hypervisor.console import Console
from vmtax.hypervisor.qemu.boot import boot
from vmtax.image import packs, zfs
from vmtax.image.cache import ImageError
from vmtax.lab import disks, memory
from vmtax.lab.disks import keep, make_disks
from vmtax.lab.home import Lab, LabError, Record, Up, lab, labs, labs_directory, trouble
from vmtax.lab.memory import promise_memory, promised
from vmtax.lab.reboot import is_off, reboot
from vmtax.lab.spec import lab_spec
from vmtax.lab.start import Wish, _make_peer, _settles, _Start, start
from vmtax.machine import CommandFailed, MachineLost, Outcome
from vmtax.machine.local import LocalMachine

__all__ = ["home"]
FAILED = CommandFailed(
    Outcome("host", ("ip", "netns", "add", "x"), 1, "", "mount --make-shared: Operation not permitted", 0.1)
)


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    with contextlib.closing(LocalMachine()) as machine:
        yield machine


class Attempts:
    """Stands for QEMU: each attempt raises the next of `failures`, or starts a process that does nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.up: Up | None = None
        monkeypatch.setattr("vmtax.lab.start._prepared", self.prepared)
        monkeypatch.setattr("vmtax.lab.start._make_peer", lambda found: None)
        monkeypatch.setattr("vmtax.lab.start._attempt", self.attempt)
        monkeypatch.setattr(_Start, "software", replace(SOFTWARE, qemu="11.0"))

    def prepared(
        self, one: Lab, local: LocalMachine, emit: object, size: object, source: Lab | None, *_: object
    ) -> _Start:
        make_disks(local, one, size, source.saved if source else None)
        rest = [None] * 4
        return _Start(one, local, quiet, size, *rest, None, None, 0.0, None)

    def attempt(self, found: _Start, number: int) -> Up:
        if self.failures:
            raise self.failures.pop(0)
        self.process = found.local.start("sleep", "60")
        self.lab, pid = found.lab, self.process.pid
        self.up = Up(found.local.token, pid, 1, "/k", "/k", "/q", 0.0, 1.0, 2.0, "", None, found.warnings)
        return self.up

    def end(self) -> None:
        """The lab ends, and its guard undoes what was set up for it."""
        self.process.stop()
        deadline = time.monotonic() + 20
        while self.lab.up_file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert all(path.exists() for path in self.lab.disks)


def there() -> list[str]:
    return sorted(path.name for path in labs_directory().iterdir())


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.varied(1)
def test_what_never_was_up_is_not_kept(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    Attempts(monkeypatch, failure)
    with pytest.raises((KeyboardInterrupt, LabError)):
        start(lab("blue"), Wish(), quiet)
    assert there() == []


def test_a_start_that_is_killed_leaves_no_half_made_lab() -> None:
    one = lab("blue")
    labs_directory().mkdir(parents=True)
    for was_up in (False, True):
        with contextlib.closing(LocalMachine()) as local:  # its guard does the same where we are killed
            make_disks(local, one, SIZE, None)
            assert labs() == [] and (one.directory / "work.raw").stat().st_size == SIZE.work_bytes
            if was_up:
                keep(one, Record(SIZE, SOFTWARE))
        assert there() == (["blue"] if was_up else [])
    assert labs() == [one] and one.record().software == SOFTWARE and not (one.directory / "making").exists()


def test_a_lab_s_record_is_of_its_last_start_that_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    before = one.record()
    Attempts(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        start(one, Wish(memory_bytes=2**30), quiet)
    assert one.record() == before and one.up() is None
    attempts = Attempts(monkeypatch)
    start(one, Wish(memory_bytes=2**30), quiet)
    assert one.record().size.memory_bytes == 2**30 and one.record().software.qemu == "11.0"
    attempts.end()


def test_an_interrupt_that_comes_too_late_takes_no_disk_from_a_running_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, one = Attempts(monkeypatch), lab("blue")
    leave = LocalMachine.leave_to

    def late(machine: LocalMachine, pid: int, logs: tuple[str, ...]) -> None:
        leave(machine, pid, logs)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalMachine, "leave_to", late)
    with pytest.raises(KeyboardInterrupt):
        start(one, Wish(), quiet)
    assert one.up() == attempts.up and all(path.exists() for path in one.disks)
    attempts.end()


@pytest.mark.parametrize(
    "failure", [BootFailed("the guest kernel panicked"), MachineLost("lab blue hangs: why"), FAILED]
)
@pytest.mark.varied(1)
def test_a_start_is_tried_twice_also_where_qemu_takes_its_networks_along(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts(monkeypatch, failure)
    up = start(made(), Wish(), quiet)
    assert up.warnings[0].startswith(f"came up at the second attempt: {str(failure).splitlines()[0]}")
    attempts.end()
    Attempts(monkeypatch, failure, failure)
    with pytest.raises(LabError, match=str(failure).splitlines()[-1].strip()):
        start(lab("red"), Wish(), quiet)


def test_a_lab_that_does_not_settle_is_left_up_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = MagicMock(warnings=[], lab=lab("blue"))
    late, log = Outcome("lab", (), 124, "", "", 90.0, timed_out=True), "+ zpool import -a -d /dev/disk/by-id\n"
    machine = MagicMock()
    machine.try_run.side_effect = [late, Outcome("lab", (), 0, log, "", 0.1)]
    assert not _settles(found, machine)
    assert found.warnings == [
        "lab blue is up, but its devices have not settled within 90 s; /run/vmtax/lab.log there ends with: "
        "+ zpool import -a -d /dev/disk/by-id"
    ]


def test_root_that_may_not_make_networks_has_those_of_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.access", lambda path, mode: True)
    monkeypatch.setattr("vmtax.lab.start.Segment", MagicMock(side_effect=FAILED))
    found = MagicMock(warnings=[], segment=None, namespace=None, link="")
    _make_peer(found)
    assert found.segment is None and found.namespace is None
    assert "may not create networks (mount --make-shared: Operation not permitted)" in found.warnings[0]


def test_a_lab_shares_the_network_of_another_that_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    there = MagicMock(peer_namespace="vmtax-abc123-peer", token="abc123ff")
    monkeypatch.setattr(Lab, "running", lambda one: there)
    segment = MagicMock()
    monkeypatch.setattr("vmtax.lab.start.Segment", segment)
    found = MagicMock(lab=lab("green"), link="blue", local=MagicMock(token="d00dfeed"))
    _make_peer(found)
    assert (found.namespace, found.segment) == ("vmtax-abc123-peer", segment.return_value)
    segment.assert_called_once_with(found.local, "d00dfe", within="abc123")
    found.link = "green"
    with pytest.raises(LabError, match="--link green: is the lab itself"):
        _make_peer(found)
    found.link, there.peer_namespace = "blue", None
    with pytest.raises(LabError, match=r"--link blue: that lab has QEMU.s user-mode network"):
        _make_peer(found)
    there.peer_namespace = "vmtax-abc123-peer"
    with pytest.raises(LabError, match="has its cards' addresses: leave out --link with --from blue"):
        start(lab("green"), Wish(link="red"), quiet, saved(made()))


@pytest.mark.parametrize("name", ["red", "blue"])
def test_disks_of_a_saved_state_are_all_there_or_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, target = saved(made()), lab(name)
    before, copy = set(there()), disks.copy_disk

    def no_room(local: LocalMachine, source: Path, to: Path) -> None:
        if source.name == "spare2.raw":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(to))
        copy(local, source, to)

    for full in (True, False):
        monkeypatch.setattr(disks, "copy_disk", no_room if full else copy)
        with contextlib.closing(LocalMachine()) as local:
            if full:
                with pytest.raises(LabError, match="No space left on device; make room there, or set XDG_DATA_HOME"):
                    make_disks(local, target, SIZE, one.saved)
            else:
                make_disks(local, target, SIZE, one.saved)
                keep(target, Record(SIZE, SOFTWARE))
        assert set(there()) == before | (set() if full else {name})
        if target.exists:
            assert {path.read_text() for path in target.disks} == ({""} if full else {"as saved"})


def test_disks_that_were_replaced_in_part_are_not_booted(local: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    one, replaced = saved(made()), Path.replace

    def killed(path: Path, target: Path) -> None:
        if list(one.directory.glob("*.raw")) and any(disk.read_text() for disk in one.disks):
            raise KeyboardInterrupt  # after the first
        replaced(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        make_disks(local, one, SIZE, one.saved)
    assert {disk.read_text() for disk in one.disks} == {"", "as saved"}
    with pytest.raises(LabError, match="going back was interrupted: vmtax lab start blue --from blue"):
        make_disks(local, one, SIZE, None)
    with contextlib.closing(LocalMachine()) as later:
        make_disks(later, one, SIZE, one.saved)
        make_disks(later, one, SIZE, None)
    assert {disk.read_text() for disk in one.disks} == {"as saved"}


def test_memory_that_another_lab_was_promised_is_not_there_for_this_one(
    local: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    labs_directory().mkdir(parents=True)
    monkeypatch.setattr(memory, "available_memory", lambda machine: 6 * 2**30)
    promise_memory(local, SIZE)
    with contextlib.closing(LocalMachine()) as other:
        words = (
            r"6\.0 GiB of memory are available, 4\.4 GiB of them promised to labs that are up, the lab takes 4\.4 GiB"
        )
        with pytest.raises(LabError, match=words):
            promise_memory(other, SIZE)
        with monkeypatch.context() as patch:
            patch.setattr(memory, "marked", lambda token: [os.getpid()])
            assert 4.375 * 2**30 - 2**30 < promised() < 4.375 * 2**30, "what it holds already is no longer available"
    local.close()
    assert promised() == 0


@pytest.mark.parametrize(
    ("code", "file", "words"),
    [
        (errno.ENOSPC, None, "/run/x: No space left on device; make room there$"),
        (
            errno.ENOSPC,
            "DATA/labs/a",
            "labs/a: No space left on device; make room there, or set XDG_DATA_HOME to another",
        ),
        (errno.EACCES, "DATA", "Permission denied; you must be able to write there, or set XDG_DATA_HOME to another"),
        (errno.ENOENT, "/saved/key", "^/saved/key: No such file or directory$"),
    ],
)
def test_the_cure_is_for_what_the_system_refused_and_where(code: int, file: str | None, words: str) -> None:
    path = file and file.replace("DATA", str(labs_directory().parent))
    error = OSError(code, os.strerror(code), *([path] if path else []))
    with pytest.raises(LabError, match=words):
        raise trouble(error, Path("/run/x"))


@pytest.mark.parametrize(("code", "said"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_a_zfs_pack_needs_room_only_where_there_is_none(
    code: int, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(packs.root_image, "need_tools", lambda tools: None)
    monkeypatch.setattr(zfs, "_build_in", MagicMock(side_effect=OSError(code, os.strerror(code), "/there")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ImageError, match=f"/there: {os.strerror(code)}{'; about 1.5 GiB are needed' if said else '$'}"):
        zfs.build(MagicMock(), quiet, again=True)


@pytest.mark.parametrize("name", ["console.log", "qemu.log"])
@pytest.mark.varied(1)
def test_a_lab_that_writes_without_end_while_it_starts_is_ended(
    name: str, local: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made()
    # As much as a test may write; it would go on for ten minutes. Constant text.
    text = 'n=0; while test $n -lt 6000; do printf "%4096s" "" >> "$1"; n=$((n+1)); sleep 0.1; done'
    monkeypatch.setattr("vmtax.hypervisor.qemu.boot.Console", functools.partial(Console, most=2**16))
    (one.directory / "initrd").touch()
    base = GuestSpec("", 1, 2**29, "tcg", Qemu(("qemu",), "10.0", ""), "/k", str(one.directory / "initrd"), "/r")
    runtime = PurePosixPath(local.scratch / "lab-1")
    spec = lab_spec(base, one.name, SIZE, PurePosixPath(one.directory), runtime)
    credentials = Credentials(one.directory / "key", one.directory / "known")
    writer = ("sh", "-c", text, "sh", str(one.directory / name))
    with (
        pytest.raises(BootFailed, match="QEMU's exit code: -9"),
        boot(local, spec, lambda *_: writer, credentials, local, BootPatience(), None),
    ):
        pass
    assert (one.directory / name).stat().st_size < 2**22


def test_a_reboot_gives_the_lab_other_arguments_whether_it_was_up_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    one, attempts = made(), Attempts(monkeypatch)
    given: list[tuple[str, ...]] = []

    def attempt(found: _Start, number: int) -> Up:
        given.append(found.arguments)
        return attempts.attempt(found, number)

    def stop(one: Lab) -> None:
        attempts.end()
        raise LabError("its power was cut")

    monkeypatch.setattr("vmtax.lab.start._attempt", attempt)
    monkeypatch.setattr("vmtax.lab.reboot.stop", stop)
    for arguments in (("mitigations=off",), ()):
        assert reboot(one, arguments, quiet) == one.up()
    assert given == [("mitigations=off",), ()]
    monkeypatch.setattr("vmtax.lab.reboot.stop", MagicMock(side_effect=LabError("it cannot be asked")))
    with pytest.raises(LabError, match="it cannot be asked"):
        reboot(one, (), quiet)
    attempts.end()


def test_a_saved_state_has_booted_already() -> None:
    with pytest.raises(LabError, match="a saved lab has booted already: leave out --kernel-arguments with --from blue"):
        start(lab("green"), Wish(kernel_arguments=("nosmt",)), quiet, saved(made()))


def test_a_log_of_writes_begins_with_the_lab_and_takes_disks() -> None:
    with pytest.raises(LabError, match="a log of writes begins with the lab: leave out --log-writes with --from blue"):
        start(lab("green"), Wish(log_writes=True), quiet, saved(made()))
    with pytest.raises(LabError, match="lab red has no spare disks, whose writes --log-writes would log"):
        start(lab("red"), Wish(spares=0, log_writes=True), quiet)


def test_a_lab_that_is_rebooted_logs_its_writes_and_has_its_network_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked = made(), list[Wish]()
    monkeypatch.setattr("vmtax.lab.reboot.start", lambda lab, wish, emit: asked.append(wish))
    monkeypatch.setattr("vmtax.lab.reboot.stop", lambda lab: None)
    for up in (None, MagicMock(logs_writes=False, link=""), MagicMock(logs_writes=True, link="red")):
        with patch.object(Lab, "up", return_value=up):
            reboot(one, (), quiet)
    assert [wish.log_writes for wish in asked] == [False, False, True]
    assert [wish.link for wish in asked] == ["", "", "red"]


def test_a_reboot_that_was_killed_on_the_way_is_done_with_the_log_that_the_lab_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, asked = made(), list[Wish]()
    monkeypatch.setattr("vmtax.lab.reboot.stop", MagicMock(side_effect=KeyboardInterrupt))
    with patch.object(Lab, "up", return_value=MagicMock(logs_writes=True)), pytest.raises(KeyboardInterrupt):
        reboot(one, (), quiet)
    monkeypatch.setattr("vmtax.lab.reboot.start", lambda lab, wish, emit: asked.append(wish))
    with patch.object(Lab, "up", return_value=None):
        reboot(one, (), quiet)
        attempts = Attempts(monkeypatch)
        start(one, Wish(), quiet)
        reboot(one, (), quiet)
    attempts.end()
    assert [wish.log_writes for wish in asked] == [True, False], "whoever started it since did so without a log"


def test_a_lab_that_shuts_down_just_now_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one, attempts, reader = made(), Attempts(monkeypatch), MagicMock()
    monkeypatch.setattr("vmtax.lab.reboot.SshReader", lambda route: reader)
    assert is_off(one), "it was never up"
    start(one, Wish(), quiet)
    assert not is_off(one), "it answers"

    def refuse() -> None:
        attempts.process.stop()
        raise MachineLost("connection refused")

    reader.log_in.side_effect = refuse
    assert is_off(one)
    attempts.end()
