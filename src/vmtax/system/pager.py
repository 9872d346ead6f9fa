"""Show long text on a terminal with a pager, as git does."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys

LESS = (
    # Options for less if LESS is not set: exit if the text fits on one screen, show colours, leave the text on the
    # screen
    "FRX"
)


def command() -> list[str]:
    """The pager: $VMTAX_PAGER, else $PAGER, else less; [] if there is none, or if it is set to "" or cat.

    Text that does not go to a terminal is not paged.
    """
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return []
    named = os.environ.get("VMTAX_PAGER", os.environ.get("PAGER", "less"))
    try:
        words = shlex.split(named)
    except ValueError:
        return []
    return words if words and words[0] != "cat" and shutil.which(words[0]) else []


def page(text: str, words: list[str]) -> bool:
    """Show `text` with a pager until the reader leaves it; False if it cannot be started."""
    environment = {**os.environ, "LESS": os.environ.get("LESS", LESS)}
    before = signal.getsignal(signal.SIGINT)
    try:
        reader = subprocess.Popen(words, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        reader.communicate(text.encode())  # a reader who leaves early has seen enough
    finally:
        reader.wait()
        signal.signal(signal.SIGINT, before)
    return True
