"""Proofs are recorded when they pass, and stale when what they cover has changed; `make test` ends with what failed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import proofs, run_tests

ROOT = Path(__file__).parents[2]
MAKEFILE = """\
# covers: src tools/shown.py
prove-it: setup ## show it
	@$(PROOF) true
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one target, what it covers, and what it does not."""
    for name, text in {"Makefile": MAKEFILE, "src/a.py": "1\n", "tools/shown.py": "2\n", "other.py": "3\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests").mkdir()
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "RECORDS", tmp_path / "tests/proofs.tsv")
    return tmp_path


def said() -> str:
    (line,) = (proofs.state(name, paths, proofs.records().get(name)) for name, paths in proofs.covered().items())
    return line


def printing(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]


def test_a_proof_is_stale_until_it_passed_and_after_what_it_covers_changed(tree: Path) -> None:
    assert said() == "prove-it          stale: no pass of it is recorded"
    assert proofs.run("prove-it", printing("it broke", 3)) == 3
    assert "stale" in said(), "one that failed is not recorded"
    assert proofs.run("prove-it", printing("\n=== 20 starts, 0 lost ===\n")) == 0
    assert "stale" not in said() and said().endswith(" in 0 min: 20 starts, 0 lost")
    (tree / "other.py").write_text("4\n")
    assert "stale" not in said(), "it is not about that file"
    (tree / "src/new.py").write_text("")
    assert "stale: passed" in said() and said().endswith("since then changed: something below src tools/shown.py")
    (tree / "src/a.py").write_text("5\n")
    assert said().endswith("since then changed: src/a.py")
    (tree / "src/a.py").write_text("1\n")
    (tree / "src/new.py").unlink()
    assert "stale" not in said(), "its files are again what they were"


def test_a_pass_is_not_recorded_when_its_files_changed_meanwhile(tree: Path) -> None:
    with pytest.raises(SystemExit, match="prove-it passed, and is not recorded: what it covers changed meanwhile"):
        proofs.run("prove-it", [sys.executable, "-c", "open('src/a.py', 'w').write('6')"])
    assert not (tree / "tests/proofs.tsv").exists()
    with pytest.raises(SystemExit, match="prove-other: the Makefile has no line '# covers:"):
        proofs.run("prove-other", ["true"])


def test_every_proof_of_the_makefile_says_what_it_covers() -> None:
    text = (ROOT / "Makefile").read_text()
    recorded = set(re.findall(r"^([a-z-]+):.*\n(?:\t.*\n)*?\t.*\$\(PROOF\)", text, re.MULTILINE))
    assert recorded == proofs.covered().keys() and len(recorded) > 10
    assert set(re.findall(r"^(prove[a-z-]*):", text, re.MULTILINE)) <= recorded
    for target, paths in proofs.covered().items():
        assert [path for path in paths if not (ROOT / path).exists()] == [], target


RECORD = """\
<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_quick" time="0.5" />
<testcase classname="tests.unit.test_a" name="test_bad[x]" time="0.25"><failure message="no">…</failure></testcase>
<testcase classname="tests.integration.test_b" name="test_slow" time="30.0" />
<testcase classname="tests.integration.test_b" name="test_unable" time="1.0"><error message="no">…</error></testcase>
</testsuite></testsuites>
"""


def test_the_end_of_a_test_run_says_where_the_time_went_and_last_what_failed(tmp_path: Path) -> None:
    (tmp_path / "unit.xml").write_text(RECORD)
    lines = run_tests.summary(run_tests.recorded(tmp_path / "unit.xml"), 20.0)
    assert lines[1] == "    30.0 s  tests/integration/test_b.py::test_slow"
    assert {"     0.8 s  tests/unit", "    31.0 s  tests/integration"} <= set(lines)
    assert lines[-3:] == [
        "FAILED tests/unit/test_a.py::test_bad[x]",
        "FAILED tests/integration/test_b.py::test_unable",
        "2 passed, 2 failed",
    ]


@pytest.mark.variations
def test_a_part_that_cannot_be_collected_fails_and_the_next_one_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    (tmp_path / "test_whole.py").write_text("def test_it() -> None: pass\n")
    monkeypatch.setitem(run_tests.TIERS, "two", {"first": ("test_broken.py",), "second": ("test_whole.py",)})
    assert run_tests.main("two") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("1 passed, ") and "FAILED the part first: pytest ended with 2" in lines


def test_every_integration_test_is_run_by_one_target() -> None:
    parts = [words for tier in run_tests.TIERS.values() for words in tier.values() if "tests/integration" in words]
    chosen = [*(words[words.index("-m") + 1] for words in parts if "-m" in words), "pack"]
    for marks in ({}, {"machines"}, {"alone"}, {"machines", "alone"}, {"pack"}):
        have = {name: name in marks for name in ("machines", "alone", "pack")}
        assert [bool(eval(expression, {}, have)) for expression in chosen].count(True) == 1, marks
