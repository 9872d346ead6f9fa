"""The command line. The only part that prints; heavy modules are imported by the command that needs them."""

from __future__ import annotations

import contextlib
import errno
import signal
import sys
from typing import NoReturn

# In the order in which --help lists them.
from vmtax.cli import calibrate, compare, host, images, lab, plans, results, run, runs  # noqa: F401
from vmtax.cli.app import app, fail
from vmtax.exits import FAILED as CANNOT
from vmtax.exits import BadInput, CannotDo

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command; whatever stops it becomes clear lines on stderr and an exit code."""
    # An ended session or a stopped service unwinds as Ctrl-C does: nothing is left behind.
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, which means it
            signal.signal(number, _interrupted)
    try:
        app(prog_name="vmtax")
    except (BadInput, CannotDo) as error:
        fail(str(error), error.exit_code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EPIPE, errno.EDQUOT):
            raise
        with contextlib.suppress(OSError):
            sys.stdout.close()  # what it still holds cannot be written either
        fail(f"standard output: {error.strerror}", CANNOT)


def _interrupted(*_: object) -> NoReturn:
    # Once is enough: a second Ctrl-C must not stop the tidying up. (Not SIG_IGN, which commands would inherit.)
    for number in ENDING:
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt
