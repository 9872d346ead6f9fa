"""How the program ends after an error: every exception becomes a line and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import traceback
from collections.abc import Iterator
from typing import Any

import typer

from vmtax.cli.app import warn
from vmtax.core.errors import BAD_INPUT, FAILED, INTERRUPTED, BadInput, CannotDo
from vmtax.system.streams import OutputError, lose

USAGE: type[Exception] = typer.BadParameter.__mro__[1]  # newer typers include their own click
DEBUG = "VMTAX_DEBUG"
# Errors caused by the host, a limit or the user's files, not by vmtax.
CAUSES = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN),
    *(errno.EACCES, errno.EPERM),
}
NAMES = {errno.ENAMETOOLONG, errno.ELOOP}  # only a name given by the user can cause these
NO_MEMORY = ("cannot allocate memory", "failed to map segment", "can't start new thread")  # in other errors' texts


def explained(error: BaseException) -> tuple[str, int]:
    """(What is wrong, exit code); the text is "" if the help was printed."""
    if isinstance(error, (BadInput, CannotDo)):
        return str(error), error.exit_code
    if isinstance(error, USAGE):
        return _usage(error), int(getattr(error, "exit_code", FAILED))
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if any(isinstance(one, MemoryError) or _names_memory(one) for one in _chain(error)):
        return "not enough memory: raise the limit (ulimit -v, or that of the container) or free some", FAILED
    if isinstance(error, OSError) and error.errno in CAUSES | NAMES:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        return f"{where}{error.strerror}", BAD_INPUT if error.errno in NAMES else FAILED
    if isinstance(error, FileNotFoundError) and error.filename is None:  # as raised by os.getcwd
        return "the working directory does not exist any more: change to one that does", BAD_INPUT
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"this is a fault in vmtax: {what}; please report it with the text that {DEBUG}=1 prints", FAILED


def output_lost(error: OutputError) -> int:
    """The exit code if stdout cannot be written; silent SIGPIPE if its reader is gone, like other tools."""
    lose()
    if error.errno == errno.EPIPE:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    warn(f"standard output: {error}")
    return FAILED


def _usage(error: Any) -> str:
    """The error of typer (a USAGE) about the command line, on one line."""
    message = " ".join((_unfit(error) or str(error.format_message())).split()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "vmtax"
    return message and f"{message[0].lower()}{message[1:]}; see `{command} --help`"


def _unfit(error: Any) -> str:
    """What is wrong with the value of an option, worded as for plans; "" if something else is wrong."""
    if error.__cause__ is None:
        return ""
    from pydantic import BaseModel, ValidationError

    from vmtax.plan.errors import problems_of

    if not isinstance(error.__cause__, ValidationError):
        return ""
    option = max(error.param.opts, key=len)
    return "; ".join(f"{option}: {problem}" for _, problem in problems_of(error.__cause__, BaseModel))


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _names_memory(error: BaseException) -> bool:
    if not isinstance(error, (ImportError, RuntimeError, OSError)):
        return False
    return any(words in str(error).lower() for words in NO_MEMORY)
