"""What is installed: everything that the program reads at run time, one version, and the shell's completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.sample import sample_experiment
from vmtax import __version__
from vmtax.store import Store

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_all_that_is_needed(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"vmtax-{__version__}-py3-none-any")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    missing = {str(path.relative_to(ROOT / "src")) for path in sources} - names
    assert missing == set(), "every file of the package, plans and templates too"
    assert any(name.endswith("share/man/man1/vmtax.1") for name in names)
    assert not [name for name in names if name.startswith(("tests", "tools"))]


def test_the_version_stands_in_one_place() -> None:
    stated = [
        path.name
        for path in (*ROOT.glob("*.toml"), *(ROOT / "src").rglob("*.py"))
        if re.search(rf'"{re.escape(__version__)}"', path.read_text())
    ]
    assert stated == ["__init__.py"]


def completed(words: str, home: Path) -> list[str]:
    """What bash offers for the last word."""
    environment = {
        **os.environ,
        "_VMTAX_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "XDG_DATA_HOME": str(home),
    }
    argv = [sys.executable, "-c", "from vmtax.cli import main; main()"]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=20).stdout.split()


def test_the_shell_completes_commands_plans_runs_and_formats(tmp_path: Path) -> None:
    assert completed("vmtax r", tmp_path) == ["run", "report", "runs"]
    assert completed("vmtax run q", tmp_path) == ["quick"]
    assert completed("vmtax plan show d", tmp_path) == ["disk-cache"]
    assert completed("vmtax show 2", tmp_path) == [] and list(tmp_path.iterdir()) == []
    with Store(tmp_path / "vmtax/vmtax.sqlite") as store:
        store.put(sample_experiment(rounds=1))
    assert completed("vmtax show 2", tmp_path) == [sample_experiment(rounds=1).id]
    assert completed("vmtax report --format m", tmp_path) == ["markdown"]
