"""The program in a process that is there already: a fork of one that has imported everything starts in no time."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import vmtax


def main(argv: Sequence[str]) -> NoReturn:
    """`vmtax ARGV`, then the end of this process, whose descriptors are the standard streams."""
    from vmtax import cli

    sys.argv = ["vmtax", *argv]
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
    code: object = 0
    try:
        cli.main()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    finally:
        os._exit(code if isinstance(code, int) else int(code is not None))


def _stream(number: int, mode: str) -> Any:
    """A standard stream as Python makes it at its start; None where the descriptor is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
    errors = "backslashreplace" if number == 2 else None
    return os.fdopen(number, mode, closefd=False, encoding=encoding, errors=errors)


@functools.cache
def import_all() -> None:
    """Everything that any command imports, also what is imported late."""
    for module in pkgutil.walk_packages(vmtax.__path__, "vmtax."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for late in ("pyarrow.parquet", "rich.live", "jinja2"):
        importlib.import_module(late)
