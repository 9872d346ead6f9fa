"""Check files on the command line before any work begins."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from vmtax.cli.app import BadUse
from vmtax.core.units import format_room

STDOUT = Path("-")  # a convention of many tools


def refuse_stdout(file: Path) -> None:
    """Raises BadUse if the file is called "-": output that is not meant to be printed must go to a file."""
    if file == STDOUT:
        raise BadUse("-: this cannot be written to standard output; name a file")


def file_of(output: Path | None) -> Path | None:
    """The file to write; None: print. Raises BadUse if it could not be written."""
    if output is None or output == STDOUT:
        return None
    check_output(output)
    return output


def check_output(file: Path, option: str = "--output", *, regular: bool = False) -> None:
    """Raises BadUse if the file cannot be written, so that this is known before hours of work.

    regular: only a regular file is allowed, no pipe and no terminal
    """
    refuse_stdout(file)
    if (mode := _mode(file, option)) is not None:
        if stat.S_ISDIR(mode):
            raise BadUse(f"{file}: is a directory; name another file with {option}")
        if not stat.S_ISREG(mode):  # a pipe, a terminal, /dev/stdout
            if regular:
                raise BadUse(f"{file}: is no regular file; name another with {option}")
            return
    parent = _mode(file.parent, option)
    if parent is None or not stat.S_ISDIR(parent):
        raise BadUse(f"{file}: its directory does not exist; name another file with {option}")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise BadUse(f"{file}: its directory cannot be written to; name another file with {option}")


def check_room(directory: Path, size: int, cure: str) -> None:
    """Raises BadUse if a directory's file system has less than `size` bytes free."""
    free = shutil.disk_usage(directory).free
    if free < size:
        raise BadUse(f"{directory}: {format_room(free)} free, {format_room(size)} are needed; {cure}")


def check_input(file: Path, what: str) -> None:
    """Raises BadUse if it is no readable file; `what`: the kind of file that is expected."""
    mode = _mode(file)
    if mode is None:
        raise BadUse(f"{file}: No such file; name one that {what}")
    if stat.S_ISDIR(mode):
        raise BadUse(f"{file}: is a directory; name a file that {what}")
    if not os.access(file, os.R_OK):
        raise BadUse(f"{file}: Permission denied; name a file that {what}")


def _mode(file: Path, option: str = "") -> int | None:
    """The file's mode; None if it does not exist. Raises BadUse if it cannot exist there."""
    try:
        return os.stat(file).st_mode  # noqa: PTH116 (Path("") is a directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadUse(f"{file}: {why}; name another file{f' with {option}' if option else ''}") from error
