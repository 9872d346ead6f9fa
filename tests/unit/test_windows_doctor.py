"""What a Windows says about itself, by the documented shapes of its answers, and what `vmtax doctor` makes of it.

No answer here was printed by a Windows: none could be had. A file that `vmtax doctor ssh://… --try` wrote is better.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from tests.command import vmtax
from vmtax.attach.clone.windows_disk import LIST
from vmtax.core.checks import Check
from vmtax.core.machines import MachineLost
from vmtax.doctor.windows import diagnose_windows, open_windows, verdict
from vmtax.doctor.windows_try import redacted
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.command_line import MOST_CHARACTERS
from vmtax.meter import hyper_v
from vmtax.meter import windows as questions
from vmtax.meter.windows import QUESTIONS, WindowsCard, WindowsDisk, WindowsFacts, parse_windows
from vmtax.report.document import Detail
from vmtax.report.render.terminal import whole
from vmtax.report.sections.doctor import document

NOW = datetime(2026, 11, 27, 14, 0, 3, tzinfo=UTC)
ANSWERS = {
    "system": "language=FullLanguage\nsystem=Microsoft Windows Server 2022 Standard\nbuild=20348\n"
    "cpu=AMD EPYC 7302P 16-Core Processor\ncpus=4\nmemory=8589332480\n"
    "model=QEMU Standard PC (Q35 + ICH9, 2009)\nhypervisor=True\nuuid=4C4C4544-0042-3510-8051-B4C04F4A4D31\n"
    "booted=2026-11-27T08:00:00\nclock=2026-11-27T14:00:00\n",
    "power": "Power Scheme GUID: 381b4222-f694-41f0-9685-ff5bb260df2e  (Balanced)\n",
    "rights": '"BUILTIN\\Administrators","Alias","S-1-5-32-544","Group owner"\n'
    '"Mandatory Label\\High Mandatory Level","Label","S-1-16-12288",""\n',
    "guard": "vbs=2\nservices=1 2\n",
    "defender": "real-time=True\n",
    "disks": "disk=SATA|SSD|True|QEMU HARDDISK\ndisk=SAS|Unspecified||QEMU | one\n",
    "drivers": "driver=100.93.104.22500|Red Hat VirtIO Ethernet Adapter\n",
    "rss": "rss=True|4|Red Hat VirtIO Ethernet Adapter\nrss=False|1|Intel(R) 82574L | x\n",
    "mitigations": "    FeatureSettingsOverride    REG_DWORD    0x3\n"
    "    FeatureSettingsOverrideMask    REG_DWORD    0x3\n",
    "tasks": "",
}


def facts(changes: Mapping[str, str] | None = None, stderr: str = "", code: int = 0) -> WindowsFacts:
    return parse_windows(
        {name: WindowsOutcome(text, stderr, code) for name, text in {**ANSWERS, **(changes or {})}.items()}
    )


def checks(found: WindowsFacts) -> dict[str, Check]:
    return {check.name: check for check in diagnose_windows("ssh://me@win", "cmd.exe", found, NOW).checks}


def test_all_that_it_says_is_read() -> None:
    found = facts()
    assert found == WindowsFacts(
        system="Microsoft Windows Server 2022 Standard",
        build=20348,
        cpu="AMD EPYC 7302P 16-Core Processor",
        cpus=4,
        memory_bytes=8589332480,
        model="QEMU Standard PC (Q35 + ICH9, 2009)",
        is_vm=True,
        uuid="4c4c4544-0042-3510-8051-b4c04f4a4d31",
        booted="2026-11-27T08:00:00",
        clock="2026-11-27T14:00:00",
        language="FullLanguage",
        scheme="381b4222-f694-41f0-9685-ff5bb260df2e",
        scheme_name="Balanced",
        administrator=True,
        vbs=True,
        hvci=True,
        real_time=True,
        disks=(WindowsDisk("QEMU HARDDISK", "SATA", cache=True), WindowsDisk("QEMU | one", "SAS", cache=None)),
        drivers=("Red Hat VirtIO Ethernet Adapter 100.93.104.22500",),
        cards=(
            WindowsCard("Red Hat VirtIO Ethernet Adapter", rss=True, queues=4),
            WindowsCard("Intel(R) 82574L | x", rss=False, queues=1),
        ),
        unmitigated=True,
    )
    assert found.to_json()["windows_rss"] == ["Red Hat VirtIO Ethernet Adapter: 4 queues", "Intel(R) 82574L | x: off"]


@pytest.mark.parametrize(
    ("said", "code", "off"),
    [
        ("", 0, False),
        ("", 1, None),
        (" FeatureSettingsOverride REG_DWORD 0x48\n FeatureSettingsOverrideMask REG_DWORD 0x3\n", 0, False),
        (" FeatureSettingsOverride REG_DWORD 0x1\n FeatureSettingsOverrideMask REG_DWORD 0x3\n", 0, True),
        (" FeatureSettingsOverride REG_DWORD 0x2000\n FeatureSettingsOverrideMask REG_DWORD 0x2003\n", 0, False),
        (" FeatureSettingsOverride REG_DWORD 0x3\n", 0, False),
        (" FeatureSettingsOverride REG_DWORD many\n", 0, False),
    ],
)
def test_mitigations_that_are_switched_off_are_known(said: str, code: int, off: bool | None) -> None:
    found = parse_windows({"mitigations": WindowsOutcome(said, "", code)})
    assert found.unmitigated is off


def test_what_disturbs_is_said_with_what_changes_it() -> None:
    found = checks(facts())
    assert {name for name, check in found.items() if check.status == "disturbs"} == {
        *("power plan", "Defender", "VBS", "disk 1", "card 2"),
    }
    assert found["power plan"].remedy == "there: powercfg /setactive SCHEME_MIN"
    assert "Set-MpPreference" in found["Defender"].remedy
    assert "with memory integrity" in found["VBS"].text
    assert found["card 1"].text == "Red Hat VirtIO Ethernet Adapter, RSS on, 4 queues"
    assert found["card 2"].remedy == "PowerShell there: Enable-NetAdapterRss -Name *"
    assert found["mitigations"].text == "switched off in its registry (FeatureSettingsOverride)"
    assert found["disk 2"].text == "QEMU | one, SAS, write cache not known"
    assert found["clock"].status == "ok"
    assert "never run on Windows" in found["VM"].text


def test_what_an_interrupted_run_left_is_said_with_what_removes_it() -> None:
    assert "left" not in checks(facts())
    found = checks(facts({"tasks": "vmtax-0123456789abcdef\nvmtax-notes\nvmtax-fedcba9876543210\n"}))
    assert found["left"].remedy == "if no run is at work there: schtasks /run /tn vmtax-0123456789abcdef"
    assert found["left 2"].text.startswith("vmtax-fedcba9876543210, of a run that is at work there, or was interrupted")
    assert "left 3" not in found, "that one is not ours"


def test_what_does_not_disturb_is_said() -> None:
    quiet = {
        "power": "GUID des Energieschemas: 8C5E7FDA-E8BF-4A96-9A85-A6E23A8C635C  (Höchstleistung)\n",
        "guard": "vbs=1\nservices=0\n",
        "defender": "real-time=False\n",
        "disks": "disk=SAS|SSD|False|VirtIO\n",
        "rss": "rss=|2|VirtIO\n",
        "mitigations": "",
    }
    found = checks(facts(quiet))
    assert (found["card 1"].text, found["mitigations"].text) == ("VirtIO, RSS not known", "as Windows has them")
    assert {name for name, check in found.items() if check.status == "disturbs"} == set()
    assert found["power plan"].text == "Höchstleistung"


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("text", ["", "garbage\n", "=\n=|\n", "vbs=x\nbuild=\nmemory=many\ndisk=|\n", "\0" * 100])
@pytest.mark.varied(10)
def test_an_answer_that_is_not_understood_is_unknown(name: str, text: str) -> None:
    found = facts({name: text})
    assert checks(found)["VM"].status in ("ok", "missing")
    assert found.build in (20348, None)


def test_nothing_is_claimed_of_a_windows_that_says_nothing() -> None:
    found = checks(parse_windows({}))
    assert {check.status for name, check in found.items() if name not in ("VM", "shell")} == {"unknown"}


@pytest.mark.parametrize(
    ("changes", "stderr", "code", "name", "status", "words"),
    [
        (
            {"system": "language=ConstrainedLanguage\n"},
            *("", 0, "answers", "unknown"),
            "its PowerShell is in constrained language mode",
        ),
        (
            {"system": ""},
            "Cannot invoke method.\n    + FullyQualifiedErrorId : MethodInvocationNotSupportedInConstrainedLanguage\n",
            *(1, "answers", "unknown"),
            "its PowerShell is in constrained language mode",
        ),
        (
            {},
            "... running scripts is disabled on this system.\n + CategoryInfo : (:) [], PSSecurityException\n",
            *(1, "answers", "unknown"),
            "Get-ExecutionPolicy -List",
        ),
        ({"defender": ""}, "CommandNotFoundException", 1, "answers", "unknown", "its PowerShell lacks a cmdlet"),
        ({"power": ""}, "", 9009, "answers", "unknown", "powershell ended with exit code 9009 when asked about system"),
        (
            {"rights": '"Mandatory Label\\Medium","Label","S-1-16-8192",""\n'},
            *("", 0, "VM", "missing"),
            "is filtered by UAC",
        ),
        ({"system": "hypervisor=False\n"}, "", 0, "VM", "missing", "no hypervisor runs it"),
        (
            {"system": "clock=2026-11-27T15:00:00\n"},
            *("", 0, "clock", "disturbs"),
            "its clock is 1 h ahead of this machine's in UTC; does its hardware clock have local time?",
        ),
        ({"system": "clock=2026-11-27T13:55:00\n"}, "", 0, "clock", "disturbs", "is 5 min behind"),
    ],
)
def test_what_may_be_wrong_there_is_one_line(
    changes: Mapping[str, str], stderr: str, code: int, name: str, status: str, words: str
) -> None:
    found = checks(facts(changes, stderr, code))[name]
    assert found.status == status
    assert words in found.text
    assert "\n" not in found.text


def test_the_verdict_says_that_it_never_ran_there() -> None:
    good = diagnose_windows("ssh://me@win", "cmd.exe", facts(), NOW)
    assert "vmtax run quick --guest ssh://me@win" in verdict(good)
    assert "never run on Windows" in verdict(good)
    bad = diagnose_windows("ssh://me@win", "cmd.exe", facts({"system": "hypervisor=False\n"}), NOW)
    assert verdict(bad) == "This Windows cannot be measured: see the arrows above."
    assert good.about == (
        "AMD EPYC 7302P 16-Core Processor, 4 CPUs, 8.0 GiB, Microsoft Windows Server 2022 Standard, build 20348"
    )


SCRIPTS = (questions.SYSTEM, questions.GUARD, questions.DEFENDER, questions.DISKS, questions.DRIVERS)


@pytest.mark.parametrize("script", [*SCRIPTS, LIST, hyper_v.VMS, hyper_v.CARDS, hyper_v.METERED, hyper_v.USED])
def test_scripts_only_read(script: str) -> None:
    verbs = re.findall(r"\b([A-Z][a-z]+)-[A-Z]\w+", script)
    assert {*verbs} <= {"Get", "Measure", "Where"}
    assert len(script.splitlines()) <= 15


@pytest.mark.parametrize(
    ("said", "adds"),
    [
        ("ssh: connect to host win port 22: Connection refused", "Add-WindowsCapability -Online -Name OpenSSH.Server"),
        ("ssh: connect to host win port 22: No route to host", ""),
    ],
)
def test_a_windows_without_an_ssh_server_is_helped(monkeypatch: pytest.MonkeyPatch, said: str, adds: str) -> None:
    def refuse(*_: object) -> None:
        raise MachineLost(said)

    monkeypatch.setattr(SshMachine, "connect", refuse)
    with contextlib.closing(LocalMachine()) as local, pytest.raises(MachineLost) as refused:
        open_windows(local, "ssh://win")
    assert (adds in str(refused.value)) and bool(adds) == ("Start-Service sshd" in str(refused.value))
    assert "\n" not in str(refused.value)


def test_each_question_fits_a_line() -> None:
    assert max(map(len, QUESTIONS.values())) < MOST_CHARACTERS - 400


@pytest.mark.parametrize(
    ("text", "names", "left"),
    [
        ("C:\\Users\\alice\\x", ["alice"], "C:\\Users\\NAME\\x"),
        ("ALICE-PC\\Alice", ["alice", "alice-pc"], "NAME\\NAME"),
        ("malice", ["alice"], "malice"),
        ("S-1-5-21-1004336348-1177238915-682003330-512", [], "S-1-5-21-0-0-0-0"),
        ("10.0.0.5 and 127.0.0.1", [], "ADDRESS and 127.0.0.1"),
        ("00-15-5D-01-02-03", [], "ADDRESS"),
        ("BUILTIN\\Administrators", ["Administrator"], "BUILTIN\\Administrators"),
        ("x", ["", "y"], "x"),
    ],
)
def test_names_are_not_in_the_file(text: str, names: list[str], left: str) -> None:
    assert redacted(text, names) == left


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("ssh://win", "--host", "ssh://other"), "is reached from here: leave it out"),
        (("ssh://-o", "--try"), "must be local, ssh://[user@]host[:port]"),
        (("ssh://win", "--try"), "add --yes"),
    ],
)
def test_bad_use_is_one_line(argv: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = vmtax("doctor", *argv, cwd=tmp_path, environment={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def screen() -> str:
    """The diagnosis of ANSWERS on a terminal of 80 columns."""
    stream = io.StringIO()
    found = diagnose_windows("ssh://Administrator@win", "cmd.exe", facts(), NOW)
    Console(file=stream, width=80).print(whole(document(found, verdict(found)), Detail.BRIEF))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def test_the_page_shows_the_last_part_of_what_is_printed() -> None:
    page = Path(__file__).parents[2] / "docs/how-to/windows.md"
    last = screen()[screen().index("What disturbs\n") :]
    assert last.count("\n") > 10 and f"```\n{last}```\n" in page.read_text()
