"""The command line, the only part that prints. Heavy modules are imported only by the commands that need them.

Arguments become calls, and results become text. Bad input ends in one line that says what is wrong, where, and what
would be right.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

from vmtax.cli.app import app, complain, warn
from vmtax.cli.completion import ASKING, join_words, leave_out_rich
from vmtax.cli.ending import explained, output_lost
from vmtax.core.errors import DONE, INTERRUPTED
from vmtax.system import search_path, streams

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command; whatever stops it is reported on stderr and as an exit code."""
    streams.ready()
    # SIGHUP and SIGTERM unwind the program as Ctrl-C does, so that nothing is left behind.
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores the signal on purpose
            signal.signal(number, _interrupted)
    try:
        code = _code()
        sys.stdout.flush()
    except streams.OutputError as error:
        code = output_lost(error)
    sys.exit(code)


def _code() -> int:
    """Run the command and return its exit code, after printing why it failed."""
    try:
        _make_path_safe()
        join_words()
        leave_out_rich()
        code = app(prog_name="vmtax", standalone_mode=False)
        if code == INTERRUPTED:  # typer's code for Ctrl-C
            raise KeyboardInterrupt
    except SystemExit as end:
        code = end.code
    except streams.OutputError:
        raise
    except BaseException as error:
        text, code = explained(error)
        if text:
            complain(text, code)
    return code if isinstance(code, int) else DONE


def _make_path_safe() -> None:
    left_out = search_path.make_safe(os.environ)
    if ASKING not in os.environ:
        for line in left_out:
            warn(line)


def _interrupted(*_: object) -> NoReturn:
    # A second Ctrl-C must not stop the removal. (Not SIG_IGN, which commands would inherit.)
    for number in ENDING:
        signal.signal(number, _interrupted_again)
    raise KeyboardInterrupt


def _interrupted_again(*_: object) -> None:
    # Not with print, which may have been interrupted in the middle of a line.
    with contextlib.suppress(OSError):
        os.write(2, b"vmtax: still removing what was set up; this continues even if vmtax is killed\n")
