"""What is installed: everything that the program reads at run time, one version, and the shell's completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command import vmtax
from tests.sample import sample_experiment
from vmtax import __version__
from vmtax.store import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (file,) = directory.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_all_that_is_needed(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert names >= {
        *(
            f"vmtax/plan/builtin/{name}.yaml"
            for name in ("quick", "layers", "disk-cache", "cpu", "pages", "storage", "storage-2013")
        ),
        *(f"vmtax/report/page/{name}" for name in ("page.html.j2", "style.css")),
        *(f"vmtax/image/guest/{name}" for name in ("init", "initramfs-init", "poweroff")),
        "vmtax/machine/guard.py",
        "vmtax/machine/tree.py",
    }
    sources = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    missing = {str(path.relative_to(ROOT / "src")) for path in sources} - names
    assert missing == set(), "every other file of the package too"


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    meta = f"vmtax-{__version__}.dist-info"
    man = f"vmtax-{__version__}.data/data/share/man/man1/vmtax.1"
    assert {name for name in wheel.namelist() if not name.startswith("vmtax/")} == {
        man,
        *(f"{meta}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")),
    }
    assert wheel.read(man) == (ROOT / "docs/reference/vmtax.1").read_bytes()
    assert "vmtax = vmtax.__main__:main" in wheel.read(f"{meta}/entry_points.txt").decode()
    assert f"\nVersion: {__version__}\n" in wheel.read(f"{meta}/METADATA").decode()


def test_the_wheel_alone_brings_no_driver_of_a_server_and_no_ansible(wheel: zipfile.ZipFile) -> None:
    """They are what `vmtax[postgresql]` and `vmtax[fleet]` add."""
    meta = wheel.read(f"vmtax-{__version__}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: ([\w-]+)(.*)$", meta, re.M)
    always = {name for name, rest in needed if "extra ==" not in rest}
    assert "sqlalchemy" in always and not always & {"psycopg", "psycopg2", "ansible", "ansible-core", "pyarrow"}
    for name, extra in (("psycopg", "postgresql"), ("ansible-core", "fleet")):
        assert any(one == name and f"extra == '{extra}'" in rest for one, rest in needed)


def test_the_wheel_alone_is_a_program(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked, without the sources and from another directory."""
    wheel.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    program = "import vmtax; from vmtax.cli import main; assert 'site' in vmtax.__file__, vmtax.__file__; main()"
    for words, expected in (("--version", f"vmtax {__version__}"), ("plan list", "quick")):
        argv = [sys.executable, "-c", program, *words.split()]
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "") and expected in done.stdout


def test_the_version_stands_in_one_place() -> None:
    """Made files have it from there, and the changelog says what is new in which."""
    kinds = {"", ".cfg", ".j2", ".json", ".md", ".py", ".toml", ".yaml", ".1"}
    trees = [path for name in ("src", "docs", "tools") for path in (ROOT / name).rglob("*")]
    paths = [
        path for path in (*ROOT.iterdir(), *trees) if path.is_file() and path.name[0] != "." and path.suffix in kinds
    ]
    version = re.compile(rf"(?<![\d.]){re.escape(__version__)}(?![\d.]*\d)")
    stated = {str(path.relative_to(ROOT)) for path in paths if version.search(path.read_text())}
    assert stated == {"src/vmtax/__init__.py", "CHANGELOG.md", "docs/reference/vmtax.1"}


def completion(protocol: dict[str, str], home: Path) -> str:
    """What the program prints where a shell asks it."""
    done = vmtax(cwd=home, environment={**os.environ, "XDG_DATA_HOME": str(home), **protocol})
    assert done.stderr == ""
    return done.stdout


def completed(words: str, home: Path) -> list[str]:
    """What bash offers for the last word."""
    number = str(len(words.split(" ")) - 1)
    return completion({"_VMTAX_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": number}, home).split()


def test_bash_completes_commands_plans_and_formats(tmp_path: Path) -> None:
    assert completed("vmtax r", tmp_path) == ["run", "report", "runs"]
    assert completed("vmtax run q", tmp_path) == ["quick"]
    assert completed("vmtax plan show ", tmp_path) == [
        "build",
        "build-2020",
        "cpu",
        "density",
        "disk-aio",
        "disk-backup",
        "disk-build",
        "disk-cache",
        "durability",
        "idle",
        "layers",
        "migration",
        "multi-queue",
        "nesting-2016",
        "network",
        "pages",
        "quick",
        "sriov",
        "storage",
        "storage-2013",
        "tiles",
        "windows",
    ]
    assert completed("vmtax report --format pa", tmp_path) == ["parquet"]
    assert completed("vmtax show --format pa", tmp_path) == [], "what show would refuse is not offered"
    assert completed("vmtax show --format m", tmp_path) == ["markdown"]


def test_bash_completes_what_follows_an_equals_sign(tmp_path: Path) -> None:
    """Bash takes the sign for a word of its own, and puts in place only what follows it."""
    assert completed("vmtax run --vary disk.aio =", tmp_path) == ["native", "threads", "io_uring"]
    assert completed("vmtax run quick --vary disk.aio = native,i", tmp_path) == ["native,io_uring"]
    assert completed("vmtax run --vary disk.aio = native q", tmp_path) == ["quick"]
    assert completed("vmtax run --vary disk.aio=native,i", tmp_path) == ["disk.aio=native,io_uring"]
    assert completed("vmtax plan check quick --vary guest.count=1", tmp_path)[:2] == ["guest.count=1", "guest.count=12"]


def test_bash_completes_lists_and_hosts(tmp_path: Path) -> None:
    assert completed("vmtax run --layers host,", tmp_path) == ["host,container", "host,vm", "host,nested"]
    assert completed("vmtax doctor --host l", tmp_path) == ["local", "lab"]
    assert completed("vmtax show --weights disk.", tmp_path) == []
    assert list(tmp_path.iterdir()) == [], "completing makes no store"


def test_bash_completes_the_metrics_of_disks_that_were_measured(tmp_path: Path) -> None:
    with Store(tmp_path / "vmtax/vmtax.sqlite") as store:
        store.put(sample_experiment(rounds=1))
    assert completed("vmtax show --weights disk.randread-4k-qd1.i", tmp_path) == ["disk.randread-4k-qd1.iops="]
    assert completed("vmtax show --weights chess", tmp_path) == []


def test_bash_completes_runs_where_they_fit(tmp_path: Path) -> None:
    assert completed("vmtax show 2", tmp_path) == []
    assert list(tmp_path.iterdir()) == [], "completing makes no store"
    done, stopped = (replace(sample_experiment(rounds=1), id=f"2026112{n}-0000-quick-aaaa") for n in (0, 1))
    with Store(tmp_path / "vmtax/vmtax.sqlite") as store:
        store.put(done)
        store.put(replace(stopped, state="interrupted"))
    assert sorted(completed("vmtax show 2", tmp_path)) == [done.id, stopped.id]
    assert completed("vmtax run --resume 2", tmp_path) == [stopped.id]
    assert completed("vmtax run 2", tmp_path) == completed("vmtax watch 2", tmp_path) == []


def test_completing_is_silent_where_the_store_is_broken(tmp_path: Path) -> None:
    (tmp_path / "vmtax").mkdir()
    (tmp_path / "vmtax/vmtax.sqlite").write_text("no database " * 100)
    assert completed("vmtax show 2", tmp_path) == []


def test_zsh_and_fish_are_answered_in_their_own_ways(tmp_path: Path) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "vmtax plan show disk-c"}
    assert "disk-cache" in completion({**asked, "_VMTAX_COMPLETE": "complete_zsh"}, tmp_path)
    fish = {**asked, "_VMTAX_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert completion(fish, tmp_path).strip() == "disk-cache"
    for shell in ("zsh", "fish"):
        assert "_VMTAX_COMPLETE" in completion({"_VMTAX_COMPLETE": f"source_{shell}"}, tmp_path)


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """The script that `vmtax --install-completion` installs, as bash calls it."""
    (tmp_path / "vmtax").write_text(f'#!/bin/sh\nexec {sys.executable} -m vmtax "$@"\n')
    (tmp_path / "vmtax").chmod(0o755)
    script = completion({"_VMTAX_COMPLETE": "source_bash"}, tmp_path)
    asked = 'COMP_WORDS=(vmtax plan show disk-c); COMP_CWORD=3; _vmtax_completion vmtax; echo "${COMPREPLY[@]}";'
    asked += 'COMP_WORDS=(vmtax run --vary disk.aio = t); COMP_CWORD=5; _vmtax_completion vmtax; echo "${COMPREPLY[@]}"'
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = ["bash", "--norc", "-c", f"{script}\n{asked}"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("disk-cache\nthreads\n", "")


def imported(words: str, names: set[str]) -> list[str]:
    """Which of these packages `vmtax WORDS` imports, and which modules of commands."""
    ours = "sorted(name[19:] for name in sys.modules if name.startswith('vmtax.cli.commands.'))"
    printing = f"print('imported', *({names} & sys.modules.keys()), *{ours})"
    program = f"import atexit, sys, vmtax.cli\natexit.register(lambda: {printing})\nvmtax.cli.main()"
    argv = [sys.executable, "-c", program, *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    *text, last = done.stdout.splitlines()
    assert [*text, *done.stderr.splitlines()], "the program answers"
    return last.split()[1:]


@pytest.mark.parametrize("words", ["--help", "--version", "help"])
@pytest.mark.varied(1)
def test_help_imports_nothing_heavy(words: str) -> None:
    """Time varies with the machine; what is loaded does not. `make bench` prints the time."""
    assert imported(words, {"jinja2", "numpy", "pyarrow", "pydantic", "sqlalchemy", "yaml"}) == []


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        *((words, []) for words in ("nosuch", "--nosuch", "--json nosuch")),
        *(("show --help", ["results"]), ("runs --help", ["runs"]), ("lab start --help", ["lab"])),
        *(("run --nosuch", ["run"]), ("claim nosuch", ["claims"]), ("image --help", ["images"])),
    ],
)
@pytest.mark.varied(2)
def test_a_command_is_declared_without_what_it_does(words: str, commands: list[str]) -> None:
    """typer checks words by pydantic."""
    assert imported(words, {"jinja2", "numpy", "pyarrow", "scipy", "sqlalchemy", "yaml"}) == commands


HEAVY = {"numpy", "pydantic", "rich.markdown", "sqlalchemy"}


@pytest.mark.parametrize(
    ("words", "shell"),
    [
        *(
            (f"vmtax {words}", "bash")  # what a shell adds is the same whatever the words
            for words in (
                *("", "show ", "show --f", "show --format m", "show --needs d", "show --for d", "run --resume "),
                *("compare ", "claim show ", "lab stop ", "runs rm ", "run q", "run --vary disk.c"),
                "calibrate --host ",
            )
        ),
        *((f"vmtax {words}", shell) for words in ("", "show ") for shell in ("zsh", "fish")),
    ],
)
@pytest.mark.varied(2)
def test_completing_imports_nothing_heavy(words: str, shell: str, tmp_path: Path) -> None:
    """Time varies with the machine; what is loaded does not. `make bench` prints the time."""
    with Store(tmp_path / "vmtax/vmtax.sqlite") as store:
        store.put(replace(sample_experiment(rounds=1), state="interrupted", boots=(), trials=()))
    (tmp_path / "vmtax/labs/lab").mkdir(parents=True)
    (tmp_path / "vmtax/labs/lab/lab.json").write_text("{}")
    bash = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    others = {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    asked = {"_VMTAX_COMPLETE": f"complete_{shell}", **bash, **others, "XDG_DATA_HOME": str(tmp_path)}
    declared = "any(name.startswith('vmtax.cli.commands.') for name in sys.modules)"
    printing = f"print('imported', *({HEAVY} & sys.modules.keys()), {declared})"
    program = f"import atexit, sys, vmtax.cli\natexit.register(lambda: {printing})"
    argv = [sys.executable, "-c", f"{program}\nvmtax.cli.main()"]
    done = subprocess.run(argv, env={**os.environ, **asked}, capture_output=True, text=True, timeout=300)
    *answered, imported = done.stdout.splitlines()
    assert answered and any(answered), (done.stdout, done.stderr)
    assert (imported, done.stderr) == (f"imported {len(words.split(' ')) > 2}", "")
