"""Long text on a terminal goes through a pager, as git does it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys

LESS = (
    "FRX"  # of less where LESS is not set: ends by itself on one screen, shows colours, leaves the text on the screen
)


def command() -> list[str]:
    """The pager: $VMTAX_PAGER, else $PAGER, else less; [] if there is none, or if it is said to be "" or cat.

    Text that is not for a terminal is not paged.
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
    """Show `text` by a pager until the reader leaves it; False if it cannot be started."""
    environment = {**os.environ, "LESS": os.environ.get("LESS", LESS)}
    before = signal.getsignal(signal.SIGINT)
    try:
        reader = subprocess.Popen(words, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's
    try:
        reader.communicate(text.encode())  # one that is left early has read enough
    finally:
        reader.wait()
        signal.signal(signal.SIGINT, before)
    return True
