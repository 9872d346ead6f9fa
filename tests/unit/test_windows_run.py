"""A Windows VM in a run: what is measured in it, with which command lines, and what is said beside its figures."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests.fake_machine import FakeMachine
from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import comparisons
from vmtax.analysis.comparisons import contrasts as pairs_of
from vmtax.core.errors import BadInput
from vmtax.core.machines import MachineLost
from vmtax.core.records import Measurement, Metric, Treatment, Trial
from vmtax.image.place import Placed
from vmtax.machine import Machine, MachineError
from vmtax.machine.ssh import SshMachine
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.machine import Windows, WindowsMachine
from vmtax.machine.windows.transport import SshTransport
from vmtax.meter.windows import WITHOUT_POWERSHELL, WindowsFacts, read_windows
from vmtax.plan.schema import parse
from vmtax.report.wording.guest_settings import guest_settings
from vmtax.storage import DISK_DIRECTORY
from vmtax.storage.file import StorageError
from vmtax.testbed.session.windows_way import WindowsInside, WindowsLogin, home_in, windows_login
from vmtax.testbed.subjects import existing, windows
from vmtax.testbed.subjects.existing import fitted, not_measured
from vmtax.workload import Site
from vmtax.workload.chess import NODES_PER_SECOND, Chess, ChessParameters
from vmtax.workload.fio import PATTERNS, Disk, DiskParameters, escaped

FACTS = WindowsFacts(cpus=2, memory_bytes=4 * 2**30)


class SilentWindows:
    """A `WindowsMachine` whose PowerShell says nothing."""

    path = "host/existing"

    def carry(self, line: str) -> WindowsOutcome:
        said = {
            WITHOUT_POWERSHELL["cpus"]: "4\n",
            WITHOUT_POWERSHELL["memory"]: "TotalPhysicalMemory  \n8589332480           \n\n",
            "echo %USERPROFILE%": "C:\\Users\\A B\n",
        }
        return WindowsOutcome(said.get(line, ""), "", 0)


def login(facts: WindowsFacts = FACTS) -> WindowsLogin:
    return WindowsLogin("ssh://win", cast("WindowsMachine", SilentWindows()), PureWindowsPath("C:\\x"), facts)


def trial_of(treatment: str, metric: Metric) -> Trial:
    workload, _, case = metric.name.rpartition(".")[0].partition(".")
    measured = (Measurement(metric, 1000.0),)
    return Trial(1, 1, treatment, workload, case, 1, "ok", 0.0, 1.0, measured)


def windows_site() -> Site:
    machine = cast("Any", SimpleNamespace(path="host/existing", os=Windows(PureWindowsPath("C:\\v"), "07")))
    return Site(machine, "existing", 2, (), disk="C:\\v\\disk.bin")


@pytest.mark.parametrize("case", [name for name, pattern in PATTERNS.items() if not pattern.fresh])
def test_fio_measures_our_file_on_windows(case: str) -> None:
    disk = Disk(DiskParameters(size="64MiB"))
    argv = disk.command(windows_site(), case)
    assert argv[0] == "C:\\v\\fio-07.exe"
    assert "--filename=C\\:\\v\\disk.bin" in argv, "unescaped, fio would measure a file C and call that a success"
    assert [word for word in argv if word.startswith("--ioengine")] == ["--ioengine=windowsaio"]
    here = disk.command(replace(windows_site(), machine=FakeMachine({}), disk="/mnt/disk"), case)
    left_out = {"--thread", *(word for word in argv if word.startswith(("--ioengine", "--filename")))}
    assert [word for word in argv[1:] if word not in left_out] == [
        word for word in here[1:] if not word.startswith(("--ioengine", "--filename"))
    ], "the same work"


def test_stockfish_on_windows() -> None:
    argv = Chess(ChessParameters()).command(windows_site(), "")
    assert argv == ("C:\\v\\stockfish-07.exe", "bench", "16", "2", "13", "default", "depth")


@pytest.mark.parametrize(
    ("path", "for_fio"), [("/dev/vda", "/dev/vda"), ("/mnt/a:b", "/mnt/a\\:b"), ("D:\\a b\\f", "D\\:\\a b\\f")]
)
def test_files_for_fio(path: str, for_fio: str) -> None:
    assert escaped(path) == for_fio


PLAN = "{name: x, layers: [host, existing], workloads: [chess, memory, disk], primary: [memory.triad.bytes_per_second]}"


def test_what_has_no_program_there_is_left_out_of_all_layers() -> None:
    plan = parse("{name: x, layers: [host, existing], workloads: [chess, memory, disk]}")
    assert not_measured(plan, login()) == ["memory"]
    kept = fitted(plan, login())
    assert [one.name for one in kept.workloads] == ["chess", "disk"]
    assert {metric.partition(".")[0] for metric in kept.primary} <= {"chess", "disk"}
    assert (kept.guest.vcpus, kept.guest.memory) == (2, 4 * 2**30)
    with pytest.raises(BadInput, match="ssh://win can measure nothing of it: only chess, disk, transfer"):
        fitted(parse("{name: x, layers: [host, existing], workloads: [memory]}"), login())


def test_a_windows_of_unknown_size_is_refused_with_the_reason() -> None:
    with pytest.raises(MachineError, match="its number of CPUs and its memory are not known: its PowerShell is"):
        fitted(parse(PLAN.partition(", primary")[0] + "}"), login(WindowsFacts(problems=("its PowerShell is …",))))


def test_its_size_is_known_without_powershell() -> None:
    facts = read_windows(SilentWindows())
    assert (facts.cpus, facts.memory_bytes) == (4, 8589332480)


@pytest.mark.parametrize(
    ("directory", "home"),
    [
        (DISK_DIRECTORY, "C:\\Users\\A B"),
        (PurePosixPath("D:\\tests"), "D:\\tests"),
        (PurePosixPath("E:/x"), "E:\\x"),
    ],
)
def test_where_our_directory_is_made(directory: PurePosixPath, home: str) -> None:
    assert str(windows_login("ssh://win", cast("WindowsMachine", SilentWindows()), directory).home) == home


def test_a_disk_without_room_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise fio would fill the disk of a Windows that is in use."""
    monkeypatch.setattr(existing, "allowed_cpus", lambda host: {0, 1})
    plan = parse("{name: x, layers: [host, existing], workloads: [{disk: {size: 4GiB}}]}")
    vm, host = login(), cast("Machine", SimpleNamespace(path="host"))
    lines: list[str] = []
    for free, least in (("4509715661", 0), ("4509715660", 1)):

        def carry(line: str, free: str = free) -> WindowsOutcome:
            lines.append(line)
            return WindowsOutcome(f"  15 Dir(s)  {free} bytes free\n", "", 0)

        there = WindowsMachine(SshTransport(cast("SshMachine", SimpleNamespace(path="x")), "cmd.exe"))
        monkeypatch.setattr(there, "carry", carry)
        with pytest.raises(StorageError) if least else contextlib.nullcontext() as refused:
            existing.look(fitted(plan, vm), host, replace(vm, there=there))
    assert refused is not None
    assert str(refused.value) == (
        "ssh://win: C:\\x has 4.2 GiB free, 4.0 GiB are needed; name another directory with --guest-dir, or a smaller"
        " workloads.disk.size in the plan"
    )
    assert lines == ['dir /ad /-c "C:\\x"'] * 2
    existing.look(parse("{name: x, layers: [host, existing], workloads: [chess]}"), host, replace(vm, there=there))
    assert len(lines) == 2, "it needs no room"


@pytest.mark.parametrize("directory", ["\\\\.\\PhysicalDrive1", "\\\\.\\D:", "\\\\?\\Volume{0}\\x"])
def test_a_disk_is_refused_by_name(directory: str) -> None:
    """Whatever its volumes: nothing of the user's is erased on a system on which vmtax never ran."""
    with pytest.raises(MachineError) as refused:
        windows_login("ssh://win", cast("WindowsMachine", SilentWindows()), PurePosixPath(directory))
    assert f"--guest-dir {PureWindowsPath(directory)} is a disk, which would lose what it holds" in str(refused.value)


@pytest.mark.parametrize(
    ("now", "restarted"), [("2026-11-27T09:00:03", False), ("", False), ("2026-11-27T12:00:00", True)]
)
def test_a_windows_that_was_restarted_ends_the_run(now: str, restarted: bool) -> None:
    """What was measured before is of another boot, and what is ours there may be gone."""
    there = MagicMock(spec=WindowsMachine, path="host/existing")
    there.carry = lambda line: WindowsOutcome(f"booted={now}\n", "", 0)
    facts = WindowsFacts(booted="2026-11-27T09:00:00")
    entered = WindowsInside(there, Placed("", "", ""), facts=facts)
    plan = SimpleNamespace(guest=SimpleNamespace(vcpus=2))
    on = cast("Any", SimpleNamespace(host=there, entered=entered, plan=plan, has_disks=False, link=None, lead=0.0))
    with pytest.raises(MachineLost, match="restarted during the run") if restarted else contextlib.nullcontext():
        assert windows.windows_site(on).machine is there


def test_a_profile_with_a_short_name_is_where_its_directory_lies() -> None:
    """8.3 names, which %USERPROFILE% may have, are paths like any other."""
    there = SimpleNamespace(carry=lambda line: WindowsOutcome("C:\\Users\\ADMINI~1\r\n", "", 0))
    home = home_in("ssh://win", cast("WindowsMachine", there), DISK_DIRECTORY)
    assert str(home) == "C:\\Users\\ADMINI~1"


@pytest.mark.parametrize("directory", ["/srv", "C:", "\\x", "x", "\\\\server\\share\\x"])
def test_a_directory_of_another_system_is_refused(directory: str) -> None:
    with pytest.raises(MachineError, match=r"is no absolute path: --guest-dir 'D:\\tests'"):
        windows_login("ssh://win", cast("WindowsMachine", SilentWindows()), PurePosixPath(directory))


@pytest.mark.parametrize("directory", ['C:\\x" & del C:\\y & "', "C:\\%TEMP%"])
def test_a_directory_is_no_command(directory: str) -> None:
    """Its name stands in a line for cmd.exe."""
    with pytest.raises(MachineError, match=r"quotation mark|percent"):
        windows_login("ssh://win", cast("WindowsMachine", SilentWindows()), PurePosixPath(directory))


def test_beside_its_figures_stands_what_they_compare() -> None:
    sample = sample_experiment()
    facts = {"host/existing": {"os": "Windows (build 20348)", "windows_programs": {"fio.exe": "0" * 64}}}
    run = replace(
        sample, options={**sample.options, "existing": {"name": "ssh://win"}}, facts={**sample.facts, **facts}
    )
    words = guest_settings(Analysis(run))
    assert "Windows build against Linux build: disk and network compare; CPU does not." in words
    assert "never run on Windows" in words
    assert "never run on Windows" not in guest_settings(Analysis(sample))


def test_cpu_figures_of_other_builds_are_not_compared() -> None:
    """A Windows VM cannot cost less CPU than none: its stockfish is another compiler's."""
    treatments = [Treatment("host", "host"), Treatment("existing", "existing"), Treatment("vm", "vm")]
    metrics = (
        NODES_PER_SECOND,
        Metric("disk.read-1m.iops", "1/s", "higher"),
        Metric("transfer.tcp-in.bits_per_second", "bit/s", "higher"),
        Metric("transfer.tcp-in.local_seconds_per_byte", "s/B", "lower"),
    )
    trials = [
        replace(trial_of(one.name, metric), round=number)
        for number in range(1, 7)
        for one in treatments
        for metric in metrics
    ]
    windows = {"host/existing": {"windows_programs": {"stockfish.exe": "0" * 64}}}

    def pairs(facts: dict[str, Any]) -> set[tuple[str, str, str]]:
        found = comparisons(treatments, trials, (), facts=facts)
        return {(one.metric.name, one.baseline, one.treatment) for one in found}

    every = {(each.name, *pair) for each in metrics for pair in pairs_of(treatments)}
    assert pairs({}) == every
    alike = {"disk.read-1m.iops", "transfer.tcp-in.bits_per_second"}
    left = {one for one in every if one[0] in alike or "existing" not in one}
    assert pairs(windows) == left
    assert (NODES_PER_SECOND.name, "host", "vm") in left
    assert ("disk.read-1m.iops", "host", "existing") in left
