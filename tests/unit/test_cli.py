"""Bad input at the real entry point: one clear line, the right exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest

from tests import command
from tests.sample import sample_experiment
from vmtax import __version__
from vmtax.cli.app import NOBODY, BadUse, agree, agree_to_cut, agree_to_erase
from vmtax.cli.asked import PlanChanges
from vmtax.cli.measuring import program
from vmtax.cli.running import _resumed, overridden
from vmtax.core.errors import BadInput
from vmtax.experiment.resume import CannotResume
from vmtax.plan.schema import load
from vmtax.report.answers.schema import json_schema
from vmtax.storage import Target
from vmtax.store import Store
from vmtax.testbed.session.session import TestbedOptions


def vmtax(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "CACHE", "STATE")}
    return command.vmtax(*argv, cwd=home, environment={**os.environ, **places, "COLUMNS": "80"})


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("run", "quik"), 2, "unknown plan 'quik'; did you mean quick?"),
        (("run", "--layers", "hst"), 2, "unknown layer 'hst'; did you mean host?"),
        (("run", "--budget", "soon"), 2, "'soon' is no duration"),
        (("run", "--host", "ftp://x"), 2, "ssh://"),
        (("run", "--resume"), 2, "no run was stopped: `vmtax runs` lists them all"),
        (("run", "--resume", "--layers", "host"), 2, "goes on as the run was begun: leave out --layers"),
        (("run", "--after-reboot"), 2, "no run was stopped: `vmtax runs` lists them all"),
        (("run", "--after-reboot", "--resume"), 2, "where the host was rebooted, --resume where not: leave out one"),
        (("run", "--after-reboot", "--rounds", "3"), 2, "--after-reboot goes on as the run was begun: leave out --r"),
        (("lab", "start", "--kernel-arguments", "a; b"), 2, "must be kernel arguments such as mitigations=off, 8 at"),
        (("run", "--layers", "host"), 2, "there is no terminal to answer from: add --yes"),
        (("run", "--yes", "-o", "no/where.html"), 2, "no/where.html: its directory does not exist"),
        (("run", "--host", "ssh://h", "--disk-dir", "here", "--yes"), 2, "must be absolute, for it is on ssh://h"),
        (
            ("run", "--host", "ssh://h", "--qemu", "./q", "--yes"),
            2,
            "--qemu ./q: must be absolute, for it is on ssh://h",
        ),
        (("run", "--interleave-with", "local", "--yes"), 2, "--interleave-with: local is the plan's own host"),
        (
            ("run", "--layers", "host", "--interleave-with", "q", "--yes"),
            2,
            "taken for a QEMU, and this plan has no",
        ),
        (("run", "--resume", "--interleave-with", "q"), 2, "as the run was begun: leave out --interleave-with"),
        (("watch",), 1, "no run is running: `vmtax run` starts one, `vmtax runs` lists all runs"),
        (("watch", "2026"), 1, "no run is running: `vmtax run` starts one, `vmtax runs` lists all runs"),
        (("import", "nosuch"), 2, "nosuch: No such file"),
        (("import", "/etc/hostname"), 2, "/etc/hostname: not a file that `vmtax export` wrote, or not all of it"),
        (("import", "/dev/null"), 2, "/dev/null: is no regular file"),
        (("image", "import", "/etc/hostname"), 2, "/etc/hostname: is not a file that `vmtax image export` wrote"),
        (("export",), 1, "no runs yet"),
        (("report", "--format", "xls"), 2, "xls"),
        (("show", "nosuch"), 1, "no runs yet: `vmtax run` makes one"),
        (("compare", "a", "b"), 1, "no runs yet: `vmtax run` makes one"),
        (("compare", "a", "b,"), 2, "'b,': a run's id is missing beside a comma"),
        (("compare", "a", "b", "--fail-if-worse", "3"), 2, "--fail-if-worse: '3' is no percentage"),
        (("compare", "a", "b", "--same-within", "100%"), 2, "--same-within: 100% is not below 100%"),
        (("compare", "a", "b", "--format", "jnit"), 2, "unknown format 'jnit'; did you mean junit?"),
        (("report",), 1, "vmtax"),
        (("report", "--format", "markdwon"), 2, "unknown format 'markdwon'; did you mean markdown?"),
        (("report", "--format", "pdf"), 2, "there are: html, markdown, json, csv, parquet"),
        (("show", "--format", "pdf"), 2, "unknown format 'pdf'; there are: html, markdown, json, csv"),
        (("show", "--full", "--format", "csv"), 2, "other formats hold everything: leave out --full"),
        (("run", "--rounds", "3", "--budget", "20m"), 2, "--budget how long they take: leave out one of them"),
        (("run", "--label", "last"), 2, "--label 'last': always means the newest run; name something else"),
        (("lab", "start", "--vcpus", "99"), 2, "--vcpus: must be at most 64, not '99'"),
        (("help", "nosuch"), 2, "no such command 'nosuch'; see `vmtax --help`"),
        (
            ("show", "--format", "parquet"),
            2,
            "parquet is no text, write it to a file: vmtax report last --format parquet",
        ),
        (("image", "remove", "nosuch"), 2, "no image 'nosuch'; there are: none"),
        (("image", "export", "file"), 1, "there is no image yet: vmtax image build"),
    ],
)
def test_bad_input_gets_one_clear_line(argv: tuple[str, ...], code: int, words: str, tmp_path: Path) -> None:
    done = vmtax(*argv, home=tmp_path)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("vmtax: ") and words in line
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (
            ("run", "--json", "--nosuch"),
            2,
            "no such option: --nosuch; see `vmtax run --help`",
        ),
        (("run", "--rounds", "x", "--json"), 2, "--rounds: must be a whole number, not 'x'; see `vmtax run --help`"),
        (("run", "--host", "", "--json"), 2, "--host is empty, and needs HOST"),
        (("run", "--json"), 2, "add --yes"),
        (("plan", "check", "--json", " "), 2, "PLAN is empty, and needs a value"),
        (("show", "--json"), 1, "no runs yet"),
        (("show", "--json", "--format", "csv"), 2, "are two formats: leave out one of them"),
        (("lab", "status", "--json", "no"), 2, "no lab"),
    ],
)
@pytest.mark.varied(3)
def test_an_error_is_json_too(argv: tuple[str, ...], code: int, words: str, tmp_path: Path) -> None:
    done = vmtax(*argv, home=tmp_path)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    answer = json.loads(done.stdout)
    assert line == f"vmtax: {answer['data']['message']}" and words in line
    assert (answer["kind"], answer["data"]["code"]) == ("error", code)
    validator = jsonschema_rs.Draft202012Validator(json_schema())
    assert validator.is_valid(answer) and not validator.is_valid({**answer, "data": {"code": 1}})


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("run", "--nosuch"), "no such option: --nosuch; see `vmtax run --help`"),
        (("run", "--budget"), "option '--budget' requires an argument; see `vmtax --help`"),
        (("lab", "stop", "a", "b"), "got unexpected extra argument(s) (b); see `vmtax lab stop --help`"),
        (
            ("lab", "start", ""),
            "NAME is empty, and needs a value (The lab's name. Default: lab); see `vmtax lab start --help`",
        ),
        (("run", "--disk-device", "/dev/sdb", "--disk-device", "\t"), "--disk-device is empty, and needs DEVICE"),
        (("run", "-o", "n" * 300), "File name too long; name another file with --output"),
        (("export", "-o", "/nonexistent/x"), "/nonexistent/x: its directory does not exist"),
        (("export", "-o", "/dev/null"), "/dev/null: is no regular file; name another with --output"),
        (("run", "-o", "-"), "-: this cannot be written to standard output; name a file"),
        (("export", "-o", "-"), "-: this cannot be written to standard output; name a file"),
        (("image", "export", "-"), "-: this cannot be written to standard output; name a file"),
        (("report", "-o", "."), ".: is a directory; name another file with --output"),
        (("lab", "ssh", "x", "--", "grep", ""), "COMMAND is empty"),
    ],
)
def test_a_bad_command_line_is_one_plain_line(argv: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = vmtax(*argv, home=tmp_path)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("vmtax: ") and words in line


def test_help_is_help_whatever_else_is_given(tmp_path: Path) -> None:
    done = vmtax("run", "--host", "", "--help", home=tmp_path)
    assert done.returncode == 0 and "--host" in done.stdout


@pytest.mark.parametrize("group", ["", "plan", "image", "lab"])
def test_help_where_a_command_is_missing(group: str, tmp_path: Path) -> None:
    words = group.split()
    done, asked = (vmtax(*words, *more, home=tmp_path) for more in ((), ("--help",)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == asked.stdout and "\nOptions\n" in done.stderr


@pytest.mark.parametrize("words", ["", "run", "plan", "plan check"])
def test_help_as_a_command(words: str, tmp_path: Path) -> None:
    done, asked = (vmtax(*line.split(), home=tmp_path) for line in (f"help {words}", f"{words} --help"))
    assert done.returncode == 0 and done.stdout == asked.stdout != ""


@pytest.mark.parametrize(("words", "kind"), [("plan list", "plans"), ("plan check storage", "plan-check")])
@pytest.mark.varied(1)
def test_plans_fit_the_screen_and_no_word_is_lost(words: str, kind: str, tmp_path: Path) -> None:
    done, answered = (vmtax(*f"{words}{more}".split(), home=tmp_path) for more in ("", " --json"))
    assert max(map(len, done.stdout.splitlines())) <= 80
    data = json.loads(answered.stdout)["data"]
    lines = data["lines"] if kind == "plan-check" else data
    whole = " ".join(str(word) for line in lines for word in (line.values() if kind == "plans" else [line]))
    shown, answer = (text.partition("`vmtax run` would say")[0].split() for text in (done.stdout, whole))
    assert shown == answer != [], "what follows is read of the host, whose load changes"


FAULTY = """
import sys
import vmtax.cli.runs
from vmtax.cli import main
def broken(*_): raise ZeroDivisionError("planted\\nhere")
vmtax.cli.runs.printed = vmtax.cli.runs.answer = vmtax.cli.runs.say = broken
sys.argv = ["vmtax", "runs", "--json"]
main()
"""


def test_a_fault_is_one_line_and_its_traceback_is_printed_on_request(tmp_path: Path) -> None:
    def faulty(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), **variables}
        return subprocess.run(
            [sys.executable, "-c", FAULTY], env=environment, capture_output=True, text=True, timeout=command.HANGS
        )

    done = faulty()
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("vmtax: this is a fault in vmtax: ZeroDivisionError: planted here; please report")
    assert json.loads(done.stdout)["data"] == {"code": 1, "message": line.removeprefix("vmtax: ")}
    told = faulty(VMTAX_DEBUG="1").stderr
    assert "Traceback (most recent call last)" in told and told.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nworkloads: [ches]\n", "2:13: workloads[0]: unknown workload 'ches'; did you mean chess?"),
        ("name: x\nworkloads: [chess]\nfactors: {disk.cach: [none]}\n", "did you mean disk.cache?"),
        ("name: x\nworkloads: [chess\nlayers: [vm]\n", ":3:"),
    ],
)
def test_a_bad_plan_is_reported_with_file_line_and_column(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)
    done = vmtax("plan", "check", "p.yaml", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("vmtax: p.yaml:") and words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data/vmtax").mkdir(parents=True)
    with Store(tmp_path / "data/vmtax/vmtax.sqlite") as store:
        store.put(sample_experiment())
    done = vmtax("report", "-o", "no/such/directory/r.html", home=tmp_path)
    assert done.returncode == 2
    assert "its directory does not exist; name another file with --output" in done.stderr
    shown = json.loads(vmtax("show", "--json", home=tmp_path).stdout)
    assert (shown["schema"], shown["kind"]) == ("vmtax/1", "experiment")
    listed = json.loads(vmtax("runs", "--json", home=tmp_path).stdout)
    assert [entry["id"] for entry in listed["data"]] == [shown["data"]["id"]]


def test_a_report_is_printed_where_the_file_is_a_dash(tmp_path: Path) -> None:
    with Store(tmp_path / "data/vmtax/vmtax.sqlite") as store:
        for id in ("a", "b"):
            store.put(replace(sample_experiment(), id=id))
    vmtax("report", "--format", "csv", "-o", "r.csv", home=tmp_path)
    done = vmtax("report", "--format", "csv", "-o", "-", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, (tmp_path / "r.csv").read_bytes().decode().replace("\r\n", "\n"))
    done = vmtax("report", "--format", "parquet", "-o", "-", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "parquet is no text, write it to a file" in done.stderr
    shown = vmtax("compare", "a", "b", home=tmp_path)
    printed = vmtax("compare", "a", "b", "-o", "-", home=tmp_path)
    assert (printed.returncode, printed.stdout) == (shown.returncode, shown.stdout) and shown.stdout
    assert not (tmp_path / "-").exists()


def test_version_and_help(tmp_path: Path) -> None:
    assert vmtax("--version", home=tmp_path).stdout == f"vmtax {__version__}\n"
    text = vmtax("--help", home=tmp_path).stdout
    assert all(command in text for command in ("run", "runs", "show", "report", "plan", "image"))


def test_rounds_are_exactly_that_number_whatever_the_budget_of_the_plan() -> None:
    plan = overridden(load("quick"), PlanChanges(rounds=40))
    assert (plan.rounds.min, plan.rounds.max, plan.budget) == (40, 40, None)


def test_a_wrong_value_is_said_to_be_that_of_its_option() -> None:
    for changes, option in ((PlanChanges(max_writes="abc"), "--max-writes"), (PlanChanges(budget="abc"), "--budget")):
        with pytest.raises(BadInput, match=rf"^{option}: 'abc' is no"):
            overridden(load("quick"), changes)


def test_fewer_layers_drop_what_those_layers_do_not_have() -> None:
    plan = overridden(load("quick"), PlanChanges(layers="host"))
    assert plan.layers == ("host",)
    assert "boot" not in {workload.name for workload in plan.workloads}
    assert not any(metric.startswith("boot.") for metric in plan.primary)


SIGNALS = """
import signal, sys
from vmtax.cli import main
sys.argv = ["vmtax", "--version"]
try:
    main()
except SystemExit:
    print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


def test_nohup_is_meant() -> None:
    argv = ["nohup", sys.executable, "-c", SIGNALS]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines()[-1] == "True False"


# In the background of a shell Ctrl-C is ignored, and vmtax leaves it so.
TWICE = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import vmtax.cli
def command(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        print("undone")
vmtax.cli.app = command
vmtax.cli.main()
"""


def test_a_second_interrupt_stops_no_undoing_and_is_answered() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (130, "undone\n")
    again, end = done.stderr.splitlines()
    assert again.startswith("vmtax: still removing what was set up; ") and end == "vmtax: interrupted"


def test_a_program_from_here_is_named_from_the_root() -> None:
    assert program("local", "./q", "--qemu") == str(Path("q").absolute())
    assert [program("local", name, "--qemu") for name in ("q", "/q", None)] == ["q", "/q", None]


@pytest.mark.parametrize(
    ("typed", "agreed"),
    [
        ("sdb\nsdc\n", True),
        ("/dev/sdb\n sdc \n", True),
        ("\n\n", False),
        ("y\nyes\n", False),
        ("sdb\nsdb\n", False),
        ("", False),
    ],
)
def test_a_device_is_erased_only_where_its_name_is_typed(
    typed: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO(typed)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    devices = ("/dev/sdb", "/dev/sdc")
    if agreed:
        agree_to_erase(False, devices)
    else:
        with pytest.raises(SystemExit):
            agree_to_erase(False, devices)
    assert "Type sdb to erase all that is on it: " in capsys.readouterr().err
    agree_to_erase(True, devices)
    monkeypatch.setattr(terminal, "isatty", lambda: False, raising=False)
    with pytest.raises(BadUse, match=re.escape(NOBODY)):
        agree_to_erase(False, devices)


@pytest.mark.parametrize("word", ["a\x1b[2Jb", "a\nb", "a\rb", "a\u202eb", "a\x9bb", "a\0b", "a\u2066b"])
def test_a_question_controls_no_terminal(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host and the command may be those of a stored run."""
    terminal = io.StringIO(f"{word}\n" * 4)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    for ask in (
        lambda: agree_to_cut(False, f"ssh://{word}", f"fence {word}"),
        lambda: agree_to_erase(False, [word]),
        lambda: agree(False, f"Remove {word}?"),
    ):
        with contextlib.suppress(SystemExit):
            ask()
        said = capsys.readouterr().err.removesuffix("not begun; nothing was changed\n").removesuffix("vmtax: ")
        assert "a" in said and said.isprintable()


def test_permission_to_erase_is_given_anew_to_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(devices=("/dev/sdb",), erase=frozenset({"/dev/sdb"}))
    options = TestbedOptions(target=target).to_json()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Store() as store:
        store.put(replace(sample_experiment(), state="interrupted", options=options))
        assert _resumed(store, "", ()).options.testbed.target == replace(target, erase=frozenset())
        assert _resumed(store, "", ["/dev/sdb"]).options.testbed.target == target
        with pytest.raises(BadUse, match="--erase /dev/sdc: is about a device of --disk-device"):
            _resumed(store, "", ["/dev/sdc"])
        with pytest.raises(CannotResume, match="asks for no reboot of the host: vmtax run --resume"):
            _resumed(store, "", (), rebooted=True)


def test_an_answer_of_no_is_no_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["vmtax", "run", "--json"])
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with pytest.raises(SystemExit) as ended:
        agree(False)
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert said.out == "" and said.err.endswith("not begun; nothing was changed\n")


@pytest.mark.parametrize(
    ("question", "answer", "begins"),
    [
        ("Begin? [Y/n]", "\n", True),
        ("Begin? [Y/n]", " yes\n", True),
        ("Begin? [Y/n]", "perhaps\n", False),
        ("Begin? [Y/n]", "", False),  # the end of the input
        ("Begin although other VMs run here? [y/N]", "\n", False),
        ("Begin although other VMs run here? [y/N]", "Y\n", True),
        ("Begin although other VMs run here? [y/N]", "", False),
    ],
)
def test_an_empty_answer_means_the_choice_in_capitals(
    question: str, answer: str, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with contextlib.nullcontext() if begins else pytest.raises(SystemExit):
        agree(False, question)
