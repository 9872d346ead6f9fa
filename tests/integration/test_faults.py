"""What goes wrong on a bad day, provoked for real: a clear line says so, what was measured is kept, nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, booted, command_line, leftovers, qemu_of, under_way, vmtax
from tests.integration.test_run import PLAN
from vmtax.core.records import Measurement, Metric, Trial
from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.experiment import trial as trial_module
from vmtax.experiment.signatures import Signatures
from vmtax.experiment.trial import TrialKey, run_trials
from vmtax.hypervisor import Credentials, Drive, Guest, GuestSpec
from vmtax.image.cache import Image
from vmtax.machine import CommandStuck, ssh
from vmtax.machine.local import LocalMachine
from vmtax.store import Store
from vmtax.testbed.session.base import RunningSubject, RunningTreatment
from vmtax.workload import BadOutput, Command, Site
from vmtax.workload.base import Parameters
from vmtax.workload.fio import Disk, DiskParameters

VM_ONLY = """\
name: faults
layers: [vm]
guest: {vcpus: 2, memory: 512MiB}
workloads:
  - disk: {patterns: [randread-4k-qd1, randwrite-4k-fsync], size: 32MiB, seconds: 1}
  - net: {cases: [tcp-in], seconds: 1}
  - boot
rounds: {min: 2, max: 2}
"""
FORMATS = """\
name: formats
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {disk.format: [raw, qcow2]}
workloads: [{disk: {patterns: [randread-4k-qd1], size: 16MiB, seconds: 1}}]
rounds: {min: 2, max: 2}
"""
INCOMPATIBLE_FEATURES = 72  # where a qcow2 header has them (QEMU's docs/interop/qcow2.txt), and the bit that QEMU sets
CORRUPT = 2  # when it finds that metadata contradict each other
# Mounts a small file system in a mount namespace of its own: constant text, the arguments stay arguments.
# Takes all room that is left once the first trial is stored in that directory.
FILLED = 'd="$1"; shift; (until [ -d "$d/vmtax/raw" ]; do sleep 0.1; done; cat /dev/zero > "$d/filler") & exec "$@"'
WITH_TMPFS = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && "$@"; code=$?; df "$PWD/small" >&2; exit $code'


class Shell(Command[Parameters]):
    """Runs any script in place of a benchmark, and expects one number from it."""

    name = "shell"
    tool = "sh"
    parameters_type = Parameters

    def __init__(self, script: str) -> None:
        super().__init__(Parameters())
        self.script = script

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return (Metric("shell.number", "1", "higher"),)

    def command(self, site: Site, case: str) -> Sequence[str]:
        return ("sh", "-c", self.script)

    def seconds(self, case: str) -> float:
        return 1.0

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        try:
            return (Measurement(self.metrics()[0], float(output)),)
        except ValueError as error:
            raise BadOutput("no number in what the script printed") from error


def tried(script: str, local: LocalMachine, *guests: Guest) -> Trial:
    machine = guests[-1].machine if guests else local
    subject = RunningSubject(Site(machine, "vm" if guests else "host", 2, ()), guests[-1] if guests else None)
    running = RunningTreatment((subject,), local, guests[:-1])
    (trial,) = run_trials(TrialKey(1, 1, "vm"), running, Shell(script), "", Signatures(), iteration=1)
    return trial


@pytest.mark.parametrize(
    ("script", "error", "kept"),
    [
        ("echo half; echo no memory >&2; exit 3", "exit code 3: no memory", "half"),
        ("echo garbage", "no number in what the script printed", "garbage"),
        ("true", "no number in what the script printed", ""),
        ("printf 'a\\377b\\000c'", "no number in what the script printed", "a\N{REPLACEMENT CHARACTER}b\0c"),
        ("kill -SEGV $$", "exit code -11", ""),
        ("nosuchprogram", "not found", "nosuchprogram"),
    ],
    ids=["non-zero", "garbage", "nothing", "bytes", "crash", "missing"],
)
def test_a_workload_that_fails_is_a_trial_with_its_output(
    local: LocalMachine, script: str, error: str, kept: str
) -> None:
    found = tried(script, local)
    assert found.status == "failed" and error in (found.error or "") and kept in found.raw
    assert found.disturbance is not None and found.disturbance.wall_seconds >= 0
    assert tried("echo 42", local).measurements[0].value == 42.0, "the next one works"


def test_a_tool_that_an_image_lacks_is_named_with_its_cure(
    local: LocalMachine, credentials: Credentials, spec: GuestSpec
) -> None:
    disk = Disk(DiskParameters())
    case = disk.cases()[0]
    with booted(local, spec, credentials, local) as guest:
        guest.machine.run("rm", "/usr/bin/fio")
        nowhere = ("bwrap", "--ro-bind", "/", "/", "--setenv", "PATH", "/nowhere")
        sites = (Site(guest.machine, "vm", 2, (), "/dev/vda"), Site(local, "host", 2, nowhere, "/dev/null"))
        for site in sites:
            running = RunningTreatment((RunningSubject(site, guest),), local)
            (found,) = run_trials(TrialKey(1, 1, "vm"), running, disk, case, Signatures(), iteration=1)
            path = site.machine.path
            assert found.error == f"{path}: fio is not in the image; `vmtax image build` makes one that has it"


@pytest.mark.machines
def test_a_guest_that_panics_hangs_or_is_killed_in_mid_workload(
    local: LocalMachine, credentials: Credentials, spec: GuestSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with booted(local, spec, credentials, local) as guest:
        found = tried("sync; echo c > /proc/sysrq-trigger; sleep 60", local, guest)
        panic = "the kernel of host/vm ended: Kernel panic - not syncing: sysrq triggered crash"
        assert found.status == "failed" and (found.error or "").endswith(panic)
        assert "Kernel panic" in found.raw, "the console is kept"

    monkeypatch.setattr(trial_module, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(trial_module, "SLOWDOWN", 1.0)
    with booted(local, spec, credentials, local) as guest:
        qemu = qemu_of(local.token)
        threading.Timer(1.0, os.kill, (qemu, signal.SIGSTOP)).start()
        found = tried("sleep 600", local, guest)
        assert found.status == "failed" and "connection is gone" in (found.error or "")
        assert found.wall_seconds < 60, "it is not waited for for ever"
    # With bubblewrap around it, the kernel ends it when that was killed: a moment later.
    deadline = time.monotonic() + HANGS
    while Path(f"/proc/{qemu}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{qemu}").exists()

    with booted(local, spec, credentials, local) as guest:
        threading.Timer(1.0, os.kill, (qemu_of(local.token), signal.SIGKILL)).start()
        found = tried("sleep 600", local, guest)
        assert "killed from outside, or by a host out of memory" in (found.error or "")
    local.close()
    assert leftovers(local.token) == []


@pytest.mark.machines
@pytest.mark.parametrize("runner", ["exec", "setsid --wait"], ids=["same-session", "own-session"])
def test_a_command_that_waits_for_a_disk_for_ever_loses_its_guest_and_says_what_it_waits_for(
    local: LocalMachine,
    credentials: Credentials,
    spec: GuestSpec,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    runner: str,
) -> None:
    """A frozen file system stands for the disk: nothing that writes to it can be killed. In a session of its own, as
    fio's jobs are, it is not killed by the time limit of the command.
    """
    monkeypatch.setattr(trial_module, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(trial_module, "SLOWDOWN", 1.0)
    monkeypatch.setattr(ssh, "DEAD_SECONDS", 10.0)
    local.run("truncate", "-s", "32M", str(tmp_path / "disk.raw"))
    drive = Drive(str(tmp_path / "disk.raw"), DiskSettings(cache=CacheMode.WRITEBACK, aio="threads"))
    with booted(local, replace(spec, vcpus=1, disks=(drive,)), credentials, local) as guest:
        guest.machine.run("sh", "-c", "cd /tmp; mkdir d; mkfs.ext4 -q /dev/vdb && mount /dev/vdb d && fsfreeze -f d")
        found = tried(f"{runner} dd if=/dev/zero of=/tmp/d/new count=1", local, guest)
        why = "host/vm: sh did not end within 3 s, nor when it was killed, although the machine answers"
        assert (found.status, found.error) == ("failed", why)
        assert re.search(r"^dd\n.*(percpu|super|freeze|sb_start)", found.raw, re.DOTALL | re.MULTILINE), found.raw
        with pytest.raises(CommandStuck):
            guest.machine.run("true")


@pytest.mark.machines
def test_a_host_s_disk_that_is_full_in_mid_write_is_a_failed_trial_that_says_so(
    local: LocalMachine, credentials: Credentials, spec: GuestSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local.undo_later("umount", str(tmp_path))
    local.run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path))
    local.run("truncate", "-s", "32M", str(tmp_path / "disk.raw"))
    monkeypatch.setattr(trial_module, "GRACE_SECONDS", 4.0)
    monkeypatch.setattr(trial_module, "SLOWDOWN", 1.0)
    drive = Drive(str(tmp_path / "disk.raw"), DiskSettings(cache=CacheMode.WRITEBACK, aio="threads"))
    with booted(local, replace(spec, disks=(drive,)), credentials, local) as guest:
        found = tried("exec dd if=/dev/urandom of=/dev/vdb bs=1M oflag=direct", local, guest)
    assert found.status == "failed" and "has paused host/vm: the storage of its disk is full" in (found.error or "")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and undo lists of this test alone."""
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def test_qemu_killed_from_outside_costs_one_round_of_one_treatment(image: Image, own: Path) -> None:
    (own / "p.yaml").write_text(VM_ONLY)
    # After the first trial, whichever treatment is first: it has a second workload to do.
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=own, trials=1) as (process, token):
        os.kill(qemu_of(token), signal.SIGKILL)
        assert process.wait(HANGS) == 0, process.stderr and process.stderr.read()
    with Store() as store:
        found = store.load()
    failed = [trial for trial in found.trials if trial.status != "ok"]
    assert found.state == "complete" and len(failed) == 1 and "killed from outside" in (failed[0].error or "")
    turns = {(number, treatment.name) for number in (1, 2) for treatment in found.treatments}
    done = {(trial.round, trial.treatment) for trial in found.trials if trial.workload == "boot"}
    assert done == turns - {(failed[0].round, failed[0].treatment)}


@pytest.mark.machines
def test_an_image_file_that_becomes_corrupt_costs_its_own_boots_only(image: Image, own: Path) -> None:
    (own / "p.yaml").write_text(FORMATS)
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=own, trials=1) as (process, token):
        (file,) = Path("/var/tmp").glob(f"vmtax-{token}-disk-*/*.qcow2")
        with file.open("r+b") as header:
            header.seek(INCOMPATIBLE_FEATURES)
            header.write(CORRUPT.to_bytes(8, "big"))
        assert process.wait(HANGS) == 0
    with Store() as store:
        found = store.load()
    failed = [trial for trial in found.trials if trial.status != "ok"]
    assert found.state == "complete" and {trial.treatment for trial in failed} == {"vm disk.format=qcow2"}
    assert all("Image is corrupt; cannot be opened read/write" in (trial.error or trial.raw) for trial in failed)
    raw = [trial for trial in found.trials if trial.treatment == "vm" and trial.workload == "disk"]
    assert [trial.status for trial in raw] == ["ok", "ok"]
    assert leftovers(token) == []


def test_a_guest_that_the_host_has_no_memory_for(image: Image, own: Path) -> None:
    (own / "huge.yaml").write_text(VM_ONLY.replace("512MiB", "512GiB"))
    done = vmtax("run", "huge.yaml", "--yes", "--emulate", directory=own)
    assert done.returncode == 1 and "512.1 GiB; lower guest.memory in the plan" in done.stderr
    (own / "p.yaml").write_text(VM_ONLY)

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    done = vmtax("run", "p.yaml", "--yes", "--emulate", directory=own, preexec_fn=little)
    assert done.returncode == 1 and "Cannot allocate memory" in done.stderr and "Traceback" not in done.stderr
    assert nothing_left(own)


def nothing_left(own: Path) -> bool:
    return not [*(own / "state/vmtax/undo").glob("*"), *(own / "state/vmtax/live").glob("*")]


def on_a_full_disk(
    own: Path, size: str, variable: str, *argv: str, filled: bool = False
) -> subprocess.CompletedProcess[str]:
    """`filled`: the disk has room at first, and is filled up once the first trial is stored there."""
    small = own / "small"
    small.mkdir(exist_ok=True)
    fill = ("sh", "-c", FILLED, "sh", str(small)) if filled else ()
    command = [*("unshare", "--mount", "sh", "-c", WITH_TMPFS, "sh", size, str(small)), *fill, sys.executable]
    command += ["-m", "vmtax"]
    environment = {**os.environ, variable: str(small)}
    return subprocess.run([*command, *argv], cwd=own, env=environment, capture_output=True, text=True, timeout=HANGS)


def test_a_full_image_cache(own: Path) -> None:
    done = on_a_full_disk(own, "200m", "XDG_CACHE_HOME", "image", "build")
    error, *_, usage = done.stderr.splitlines()[-3:]
    assert done.returncode == 1
    assert error.startswith("vmtax: building the root image:") and "free; about 2 GiB are needed" in error
    assert usage.split()[2] == "0", "nothing was begun"


def test_a_full_store(image: Image, own: Path) -> None:
    """A host-only run whose results no longer fit: what did fit stays, and says that it can be resumed."""
    (own / "p.yaml").write_text(PLAN.replace("[host, vm, nested]", "[host]").replace("  - boot\n", ""))
    begin = ("run", "p.yaml", "--yes")
    done = on_a_full_disk(own, "176k", "XDG_DATA_HOME", *begin)
    assert done.returncode == 2 and "free, 32 MiB are needed; set XDG_DATA_HOME" in done.stderr, "before it begins"
    done = on_a_full_disk(own, "40m", "XDG_DATA_HOME", *begin, filled=True)
    assert done.returncode == 1, done.stderr
    assert "no space left" in done.stderr.lower() and "set XDG_DATA_HOME" in done.stderr
    assert "Traceback" not in done.stderr and nothing_left(own)


def test_an_image_that_is_damaged_or_half_built_is_never_used(
    image: Image, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = own / "cache"
    copy = cache / "vmtax/images" / image.identity
    copy.parent.mkdir(parents=True)
    # Reflinked or hard-linked where possible, so that only what is damaged is written.
    subprocess.run(["cp", "-al", str(image.directory), str(copy)], check=False)
    if not (copy / "contents").exists():
        subprocess.run(["cp", "-a", str(image.directory), str(copy)], check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    initrd = (copy / "initrd").read_bytes()
    (copy / "initrd").unlink()
    (copy / "initrd").write_bytes(initrd[:-4] + b"zzzz")
    done = vmtax("run", "--layers", "host", "--rounds", "1", "--yes", "--emulate", directory=own)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"`vmtax image remove {image.identity}` and it is built anew")
    (copy / "contents").unlink()
    assert f"{image.identity}  half made, damaged" in vmtax("image", "list", directory=own).stdout
    assert nothing_left(own)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.machines),
    ],
)
def test_signals_unwind(image: Image, own: Path, number: signal.Signals) -> None:
    (own / "p.yaml").write_text(
        PLAN.replace("[host, vm, nested]", "[host]").replace("  - boot\n", "").replace("2}", "40}")
    )
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=own, trials=2) as (process, token):
        process.send_signal(number)
        assert process.wait(HANGS) == 130
        assert process.stderr is not None and "vmtax run --resume" in process.stderr.read()
        assert leftovers(token) == [] and nothing_left(own)


def test_a_dead_guard_is_made_up_for(image: Image, own: Path) -> None:
    """The guard is killed first, then vmtax: the next start of anything undoes what both have left."""
    (own / "p.yaml").write_text(VM_ONLY.replace("2}", "40}"))
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=own, trials=2) as (process, token):
        for guard in guards(process.pid):
            os.kill(guard, signal.SIGKILL)
        process.kill()
        process.wait()
        assert leftovers(token), "no guard was left to undo it"
        machine = LocalMachine()
        assert machine.guard.recovered == 1 and machine.guard.left == []
        machine.close()
        assert leftovers(token) == [] and nothing_left(own)


def guards(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            ours = int(stat.read_text().rpartition(")")[2].split()[1]) == parent
            if ours and "vmtax-guard" in command_line(stat.parent.name):
                yield int(stat.parent.name)


def test_a_stopped_run_is_finished(image: Image, own: Path) -> None:
    """SIGKILL in mid-run; `run --resume` keeps every trial, adds the rest, and the report says so."""
    (own / "p.yaml").write_text(VM_ONLY.replace("{min: 2, max: 2}", "{min: 1, max: 1}"))
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=own, trials=3) as (process, _):
        process.kill()
        process.wait()
    with Store() as store:
        kept = store.load().trials
    done = vmtax("run", "--resume", "--yes", "--emulate", "-o", "r.html", directory=own)
    assert done.returncode == 0, done.stderr
    with Store() as store:
        found = store.load()
    assert found.state == "complete" and found.trials[: len(kept)] == kept
    places = [(trial.round, trial.treatment, trial.workload, trial.case) for trial in found.trials]
    assert len(places) == len(set(places)) == 4 + 3, "the A/A leaves out the pattern that is not primary"
    assert any("resumed" in note for note in found.notes) and "resumed" in (own / "r.html").read_text()
    assert vmtax("run", "--resume", "--yes", "--emulate", directory=own).returncode == 2
    assert nothing_left(own)
