"""`vmtax` as a user runs it, in forks of a process that has imported everything: half a second less each.

What depends on how Python itself starts (encoding, closed streams, ignored signals) needs `python -m vmtax`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.program import main

# Waits end by what happens. Only what hangs takes so long, on however busy a machine.
HANGS = 900.0  # seconds
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.preloaded"])


def vmtax(
    *argv: str, cwd: Path, environment: Mapping[str, str], terminal: str | None = None
) -> subprocess.CompletedProcess[str]:
    """`vmtax ARGV` there, with these environment variables and no others, without standard input.

    `terminal`: the path of one, for standard output and standard error, of which nothing is returned then.
    """
    with tempfile.TemporaryDirectory() as directory:
        out, err = (terminal or f"{directory}/{name}" for name in ("out", "err"))
        process = _forks.Process(target=_child, args=(argv, str(cwd), dict(environment), out, err))
        process.start()
        process.join(HANGS)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(argv, HANGS)
        code = process.exitcode
        process.close()
        texts = ["", ""] if terminal else [Path(path).read_bytes().decode() for path in (out, err)]
    assert code is not None
    return subprocess.CompletedProcess(argv, code, *(text.replace("\r\n", "\n") for text in texts))


def _child(argv: tuple[str, ...], cwd: str, environment: dict[str, str], out: str, err: str) -> None:
    os.setsid()
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(path, flags | os.O_NOCTTY | (os.O_CREAT if number else 0), 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if "tests.preloaded" not in sys.modules:
        sys.exit("tests/preloaded.py could not be imported where forks are made")
    main(argv)
