"""Bad input at the real entry point: one clear line, the right exit code, never a traceback."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample import sample_experiment
from vmtax import __version__
from vmtax.cli.app import NOBODY, BadUse, agree_to_erase
from vmtax.cli.run import _overridden
from vmtax.plan import load
from vmtax.store import Store


def vmtax(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "CACHE", "STATE")}
    command = [sys.executable, "-m", "vmtax", *argv]
    environment = {**os.environ, **places, "COLUMNS": "80"}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("run", "quik"), 2, "unknown plan 'quik'; did you mean quick?"),
        (("run", "--layers", "hst"), 2, "unknown layer 'hst'; did you mean host?"),
        (("run", "--budget", "soon"), 2, "'soon' is no duration"),
        (("run", "--host", "ftp://x"), 2, "ssh://"),
        (("run", "--resume"), 2, "no run was stopped: `vmtax runs` lists them all"),
        (("run", "--resume", "--layers", "host"), 2, "goes on as the run was begun: leave out --layers"),
        (("run", "--layers", "host"), 2, "nobody is there to answer: add --yes"),
        (("run", "--yes", "-o", "no/where.html"), 2, "no/where.html: its directory does not exist"),
        (("run", "--host", "ssh://h", "--disk-dir", "here", "--yes"), 2, "must be absolute, for it is on ssh://h"),
        (("run", "--interleave-with", "local", "--yes"), 2, "--interleave-with: local is the plan's own host"),
        (
            ("run", "--layers", "host", "--interleave-with", "q", "--yes"),
            2,
            "taken for a QEMU, and this plan has no",
        ),
        (("run", "--resume", "--interleave-with", "q"), 2, "as the run was begun: leave out --interleave-with"),
        (("watch",), 1, "no run goes on: `vmtax runs` lists them"),
        (("watch", "2026"), 1, "no run 2026 goes on"),
        (("import", "nosuch"), 1, "nosuch: No such file"),
        (("export",), 1, "no experiments yet"),
        (("report", "--format", "xls"), 2, "xls"),
        (("show", "nosuch"), 1, "no experiments yet: `vmtax run` makes one"),
        (("compare", "a", "b"), 1, "no experiments yet: `vmtax run` makes one"),
        (("compare", "a", "b,"), 2, "'b,': a run's id is missing beside a comma"),
        (("compare", "a", "b", "--fail-if-worse", "3"), 2, "--fail-if-worse: '3' is no percentage"),
        (("compare", "a", "b", "--same-within", "100%"), 2, "--same-within: 100% is not below 100%"),
        (("compare", "a", "b", "--format", "jnit"), 2, "unknown format 'jnit'; did you mean junit?"),
        (("report",), 1, "vmtax"),
        (("report", "--format", "markdwon"), 2, "unknown format 'markdwon'; did you mean markdown?"),
        (("report", "--format", "pdf"), 2, "there are: html, markdown, json, csv, parquet"),
        (("show", "--format", "parquet"), 2, "parquet is no text: vmtax report last --format parquet"),
        (("image", "remove", "nosuch"), 1, "no image 'nosuch'; there are: none"),
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
    ("text", "words"),
    [
        ("name: x\nworkloads: [ches]\n", "2:13: workloads[0]: unknown workload 'ches'; did you mean chess?"),
        ("name: x\nworkloads: [chess]\nfactors: {disk.cach: [none]}\n", "did you mean disk.cache?"),
        ("name: x\nworkloads: [chess\nlayers: [vm]\n", ":3:"),
    ],
)
def test_a_bad_plan_is_told_with_file_line_and_column(text: str, words: str, tmp_path: Path) -> None:
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
    assert "No such file or directory; name another file with --output" in done.stderr
    shown = json.loads(vmtax("show", "--json", home=tmp_path).stdout)
    assert (shown["schema"], shown["kind"]) == ("vmtax/1", "experiment")
    listed = json.loads(vmtax("runs", "--json", home=tmp_path).stdout)
    assert [entry["id"] for entry in listed["data"]] == [shown["data"]["id"]]


def test_version_and_help(tmp_path: Path) -> None:
    assert vmtax("--version", home=tmp_path).stdout == f"vmtax {__version__}\n"
    text = vmtax("--help", home=tmp_path).stdout
    assert all(command in text for command in ("run", "runs", "show", "report", "plan", "image"))


def test_fewer_layers_drop_what_those_layers_do_not_have() -> None:
    plan = _overridden(load("quick"), host=None, layers="host", budget=None, rounds=None)
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
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines()[-1] == "True False"


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
