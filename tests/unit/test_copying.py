"""A snapshot or backup of a disk while its guest works: what QEMU gets, when it begins, what makes a trial void."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command import HANGS
from tests.fake_machine import FakeMachine
from vmtax.design.disk import DiskSettings, During
from vmtax.experiment import writes
from vmtax.experiment.beside import beside
from vmtax.hypervisor import Drive
from vmtax.hypervisor.qemu.copying import COPIES, BlockCopy
from vmtax.hypervisor.qemu.drives import disk_arguments
from vmtax.hypervisor.qemu.qmp import QmpError
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.testbed.host import needs
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.copying import CopyingPart
from vmtax.testbed.session import copying
from vmtax.testbed.session.copying import AT_WORK, Copying, Spare
from vmtax.workload.build import Build
from vmtax.workload.fio import Disk, DiskParameters

MIB = 2**20
DRIVE = Drive("/d/disk1.raw", DiskSettings(), spare="/d/spare", auto_read_only=False)
PLAN = "{name: x, layers: [vm], workloads: [%s]}"
SMALL = "disk: {size: 64MiB, fresh_size: 16MiB, seconds: 2, patterns: [%s]}"


BEGIN_A_JOB = ("blockdev-create", "block-commit", "blockdev-backup")


class Monitor:
    """A QEMU: its disk is a node, over which a snapshot can lie, and it has one job at most."""

    def __init__(self, *states: Mapping[str, Any]) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.node, self.work = "#block1", 0
        self.states = list(states)
        self.refuses, self.no_job = "", False

    def execute(self, command: str, **words: Any) -> Any:
        self.said.append((command, words))
        if command == self.refuses:
            raise QmpError(f"{command} was refused")
        if command == "blockdev-snapshot":
            self.node = words["overlay"]
        if command == "job-complete":
            self.node = "#block1"
        answers: dict[str, Any] = {
            "query-block": [
                {"device": "root", "inserted": {}},
                {
                    "device": "data",
                    "inserted": {"node-name": self.node, "image": {"virtual-size": 64 * MIB, "actual-size": 9 * MIB}},
                },
            ],
            "query-blockstats": [
                {"device": "root", "stats": {"rd_operations": 10**6, "wr_operations": 0}},
                {"device": "data", "stats": {"rd_operations": self.work, "wr_operations": 2 * self.work}},
            ],
        }
        self.no_job = command == "job-dismiss" or (self.no_job and command not in BEGIN_A_JOB)
        if command == "query-jobs" and self.no_job:
            return []
        if command == "query-jobs":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return [{"id": "data-job", "type": "mirror", "current-progress": 5, **state}]
        return answers.get(command, {})

    @property
    def orders(self) -> list[str]:
        return [command for command, _ in self.said if not command.startswith("query-")]


def copy(what: During, *states: Mapping[str, Any]) -> tuple[BlockCopy, Monitor]:
    monitor = Monitor(*states)
    return COPIES[what](monitor, DRIVE, sleep=lambda _: None), monitor  # type: ignore[arg-type]


DONE, READY, RUNNING = {"status": "concluded"}, {"status": "ready"}, {"status": "running"}


def test_a_snapshot_is_taken_and_its_image_merged_into_the_node_that_was_the_disk() -> None:
    made, monitor = copy(During.SNAPSHOT, DONE, RUNNING, READY, DONE)
    made.prepare()
    made.begin(1)
    assert made.end() == 9 * MIB
    made.undo()
    created = ["blockdev-create", "job-dismiss", "blockdev-add", "blockdev-snapshot"]
    assert monitor.orders == [*created, "block-commit", "job-complete", "job-dismiss", "blockdev-del"]
    said = dict(monitor.said)
    assert said["blockdev-add"]["backing"] is None and said["blockdev-add"]["file"] == "data-spare"
    assert said["blockdev-create"]["options"] == {"driver": "qcow2", "file": "data-spare", "size": 64 * MIB}
    assert said["block-commit"]["base_node"] == "#block1" and monitor.node == "#block1"


def test_a_snapshot_that_was_never_taken_leaves_nothing_to_merge() -> None:
    made, monitor = copy(During.SNAPSHOT, DONE)
    made.prepare()
    made.undo()
    assert "block-commit" not in monitor.orders and monitor.orders[-1] == "blockdev-del"


def test_a_snapshot_that_the_disk_does_not_have_is_none() -> None:
    made, monitor = copy(During.SNAPSHOT, DONE)
    made.prepare()
    made.begin(1)
    monitor.node = "#block1"
    with pytest.raises(QmpError, match="the disk has no snapshot"):
        made.end()


def test_a_backup_copies_the_whole_disk_at_its_rate_and_is_ended_with_the_work() -> None:
    made, monitor = copy(During.BACKUP, RUNNING, RUNNING, RUNNING, DONE)
    made.prepare()
    made.begin(12 * MIB)
    assert made.end() == 5
    assert monitor.orders == ["block_resize", "blockdev-backup", "job-cancel", "job-dismiss"]
    words = dict(monitor.said)["blockdev-backup"]
    assert (words["sync"], words["speed"], words["target"]) == ("full", 12 * MIB, "data-spare")
    assert words["auto_dismiss"] is False  # otherwise its failure could not be read


def test_a_backup_that_ends_before_it_is_cancelled_is_forgotten() -> None:
    made, monitor = copy(During.BACKUP, RUNNING, DONE)
    monitor.refuses = "job-cancel"
    assert made.end() == 5
    assert monitor.orders == ["job-cancel", "job-dismiss"]


def test_what_stands_still_is_ended_when_the_disk_is_made_as_it_was() -> None:
    made, monitor = copy(During.BACKUP, RUNNING)
    with pytest.raises(QmpError, match="makes no progress"):
        made.end()
    monitor.states = [DONE]
    made.undo()
    assert monitor.orders[-1] == "job-dismiss"
    made.undo()
    assert monitor.orders.count("job-dismiss") == 1


def test_a_snapshot_that_could_not_be_prepared_has_no_image_to_remove() -> None:
    made, monitor = copy(During.SNAPSHOT, {**DONE, "error": "No space left on device"})
    with pytest.raises(QmpError, match="No space left"):
        made.prepare()
    made.undo()
    assert "blockdev-del" not in monitor.orders


def test_a_backup_that_failed_by_itself_says_why() -> None:
    made, _ = copy(During.BACKUP, {**DONE, "error": "No space left on device"})
    made.prepare()
    made.begin(1)
    with pytest.raises(QmpError, match="No space left"):
        made.end()


def test_a_job_that_stands_still_is_not_waited_for() -> None:
    made, _ = copy(During.SNAPSHOT, RUNNING)
    with pytest.raises(QmpError, match="makes no progress after 5 bytes"):
        made.prepare()


def test_qemu_holds_the_spare_file_open_as_it_does_the_disk() -> None:
    words = disk_arguments([DRIVE])
    node = json.loads(words[words.index("-blockdev") + 1])
    assert node["node-name"] == "data-spare" and node["filename"] == "/d/spare"
    assert node["cache"] == {"direct": True, "no-flush": False} and node["aio"] == "native"
    assert "auto-read-only=off" in words[words.index("-drive") + 1]
    assert "-blockdev" not in disk_arguments([Drive("/d/disk1.raw")])


class Copied:
    """A copy of a disk that is seen at work after `looks` looks."""

    def __init__(self, looks: int = 2, fails: str = "") -> None:
        self.did: list[str] = []
        self.looks, self.fails, self.rate = looks, fails, 0

    def _do(self, step: str) -> None:
        self.did.append(step)
        if self.fails == step:
            raise QmpError(f"QEMU refused to {step}")

    def prepare(self) -> None:
        self._do("prepare")

    def operations(self) -> int:
        self.looks -= 1
        return AT_WORK if self.looks < 0 else 0

    def begin(self, rate: int) -> None:
        self.rate = rate
        self._do("begin")

    def end(self) -> int:
        self._do("end")
        return 7

    def undo(self) -> None:
        self._do("undo")


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(copying, "LOOK_SECONDS", 0.001)
    yield


def offered(made: Copied) -> tuple[Copying, FakeMachine]:
    host = FakeMachine("host", {lambda argv: argv[0] == "truncate": ""})
    guest: Any = SimpleNamespace(path="host/vm", copying=lambda disk, what: made)
    spares = {"data": Spare(PurePosixPath("/d/spare"), 64 * MIB), "fresh": Spare(PurePosixPath("/d/other"), 16 * MIB)}
    return Copying(host, guest, During.BACKUP, spares), host


def run(made: Copying, case: str = "randread-4k-qd1", waits: Sequence[Any] = ()) -> Any:
    """One trial of fio; returns what is read at its end."""
    subject = SimpleNamespace(site=SimpleNamespace(lead=0), offer=lambda kind: made)
    disk = Disk(DiskParameters(patterns=(case,), size="64MiB", seconds=7.5))
    with beside(SimpleNamespace(subjects=[subject]), disk, case) as accompanied:  # type: ignore[arg-type]
        accompanied.begin()
        for wait in waits:
            wait()
        (found,) = accompanied.end()
    return found


def until(made: Copied, step: str) -> None:
    deadline = time.monotonic() + HANGS
    while step not in made.did:
        assert time.monotonic() < deadline, f"no {step}"
        time.sleep(0.001)


def test_a_copy_begins_when_the_disk_is_at_work_and_lasts_as_long_as_the_work() -> None:
    made = Copied(looks=20)
    offer, host = offered(made)
    found = run(offer, waits=[lambda: until(made, "begin")])
    assert made.looks < 0 and made.did == ["prepare", "begin", "end", "undo"]
    assert not found.void and found.rows["bytes"] == 7 and made.rate == -(-64 * MIB // 8)
    assert host.calls == [("truncate", "--size=0", "/d/spare")]


def test_the_disk_that_was_never_written_is_the_one_that_is_copied_while_it_is_written() -> None:
    made = Copied()
    offer, host = offered(made)
    run(offer, "first-write-4k", [lambda: until(made, "begin")])
    assert host.calls == [("truncate", "--size=0", "/d/other")]


def test_work_that_is_not_seen_on_the_disk_makes_the_trial_void() -> None:
    made = Copied(looks=10**9)
    found = run(offered(made)[0])
    assert found.void == "host/vm: disk.snapshot_during=backup: the disk was not seen at work"
    assert made.did == ["prepare", "undo"]


def test_work_that_goes_on_long_after_the_backup_was_over_makes_the_trial_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying.Stopwatch, "seconds", property(lambda watch: 10.0))
    assert not run(offered(made := Copied())[0], waits=[lambda: until(made, "begin")]).void
    monkeypatch.setattr(copying.Stopwatch, "seconds", property(lambda watch: 10.1))
    found = run(offered(made := Copied())[0], waits=[lambda: until(made, "begin")])
    assert "the work took 10.1 s, and the backup was over after 8.0 s" in found.void
    assert made.did[-2:] == ["end", "undo"]


def test_other_work_is_not_waited_for() -> None:
    made = Copied(looks=10**9)
    offer, _ = offered(made)
    subject = SimpleNamespace(site=SimpleNamespace(lead=0), offer=lambda kind: offer)
    build = Build(Build.parameters_type())
    with beside(SimpleNamespace(subjects=[subject]), build, build.cases()[0]) as accompanied:  # type: ignore[arg-type]
        accompanied.begin()
        until(made, "begin")
        assert not accompanied.end()[0].void  # type: ignore[union-attr]


@pytest.mark.parametrize("step", ["prepare", "begin", "end"])
def test_what_qemu_refuses_makes_the_trial_void_and_says_why(step: str) -> None:
    made = Copied(fails=step)
    waits = [lambda: until(made, "begin")] if step != "prepare" else []
    assert f"QEMU refused to {step}" in run(offered(made)[0], waits=waits).void


def test_a_disk_that_is_not_as_it_was_is_measured_no_more_and_its_image_is_not_emptied() -> None:
    made = Copied(fails="undo")
    offer, host = offered(made)
    assert not run(offer, waits=[lambda: until(made, "begin")]).void
    assert "QEMU refused to undo" in run(offer).void
    assert len(host.calls) == 1 and made.did.count("begin") == 1


def test_guests_without_a_copy_have_nothing_beside_their_work() -> None:
    subject = SimpleNamespace(site=SimpleNamespace(lead=0), offer=lambda kind: None)
    disk = Disk(DiskParameters(patterns=("read-1m",)))
    with beside(SimpleNamespace(subjects=[subject]), disk, "read-1m") as accompanied:  # type: ignore[arg-type]
        accompanied.begin()
        assert accompanied.end() == [None]


def plan(*changes: str, patterns: str = "randread-4k-qd1", workloads: str = "") -> Plan:
    return varied(parse(PLAN % (workloads or SMALL % patterns), "x"), changes)


def copied(level: str, patterns: str, more: str = "") -> float:
    """MiB beside what fio writes, at most, in one round of one guest."""
    made = plan(f"disk.snapshot_during={level}", workloads=SMALL % patterns + more)
    return writes._copied(made, [each for each in made.treatments()[0] if each.repeats is None]) / MIB


@pytest.mark.parametrize(
    ("level", "patterns", "bytes"),
    [
        ("none", "randwrite-4k-qd1", 0),
        ("backup", "randread-4k-qd1", 64),
        ("backup", "randread-4k-qd1, randwrite-4k-qd1", 128),
        ("backup", "first-write-4k", 16),
        ("snapshot", "randread-4k-qd1", 0),
        ("snapshot", "randwrite-4k-qd1", 128),  # its image, and that once more when it is merged
    ],
)
def test_what_is_copied_is_foreseen(level: str, patterns: str, bytes: int) -> None:
    assert copied(level, patterns) == bytes


def test_a_backup_while_other_things_are_measured_is_foreseen_too() -> None:
    assert copied("backup", "randread-4k-qd1", ", memory: {cases: [faults]}") == 128


def test_the_spare_files_need_as_much_space_as_the_disks() -> None:
    with_it, without = (
        plan("disk.snapshot_during=none,backup", patterns="first-write-4k"),
        plan(patterns="first-write-4k"),
    )
    assert needs.disk_sizes(with_it)[1] - needs.disk_sizes(without)[1] == (64 + 16) * MIB


@pytest.mark.parametrize("other", ["disk.share=9p", "disk.filesystem=none"])
def test_a_disk_that_is_no_file_of_the_guest_has_none(other: str) -> None:
    with pytest.raises(PlanError, match=r"disk\.snapshot_during=backup needs disk\."):
        plan("disk.snapshot_during=backup", other)


@pytest.mark.parametrize(("workload", "others"), [("durability", f"{SMALL % 'read-1m'}, "), ("migration", "")])
def test_workloads_that_take_a_disk_of_their_own_are_refused(workload: str, others: str) -> None:
    made = plan("disk.snapshot_during=none,backup", workloads=f"{others}{workload}")
    request = Request(FakeMachine("host"), made, made.treatments()[0])
    ((name, why),) = CopyingPart().lacking(request).items()
    assert name == "vm disk.snapshot_during=backup" and workload in why


@pytest.mark.parametrize(
    ("settings", "pattern", "bytes"),  # MiB that QEMU writes beside 16 MiB of first writes
    [
        (("disk.format=qcow2", "disk.preallocation=off"), "first-write-4k", 15),
        (("disk.format=qcow2", "disk.preallocation=off"), "first-write-64k", 0),
        (("disk.format=qcow2", "disk.preallocation=off", "disk.cluster_size=128KiB"), "first-write-64k", 8),
        (("disk.format=qcow2", "disk.preallocation=off", "disk.extended_l2=on"), "first-write-4k", 0),
        (("disk.format=qcow2", "disk.preallocation=off"), "randwrite-4k-qd1", 0),  # of a disk that was filled
        (("disk.format=qcow2", "disk.preallocation=metadata"), "first-write-4k", 0),
        (("disk.format=raw", "disk.preallocation=off"), "first-write-4k", 0),
    ],
)
def test_the_rest_of_each_new_cluster_is_foreseen(settings: tuple[str, ...], pattern: str, bytes: int) -> None:
    made = plan(*settings, patterns=pattern)
    machines = [each for each in made.treatments()[0] if each.repeats is None]
    assert writes._copied(made, machines) == bytes * MIB
