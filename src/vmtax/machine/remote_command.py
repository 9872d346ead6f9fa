"""How a command begins and ends on a machine behind ssh. What the machine executes here is constant text."""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Sequence
from typing import IO

from vmtax.core.machines import MachineLost
from vmtax.machine.pipes import BANNER_BYTES, TooMuch, excerpt, read_line
from vmtax.machine.processes import MARK

USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A login starts in a directory of the user's, with the login's PATH: change to /, and replace a PATH that has relative
# directories. Constant text.
ANYWHERE = f'command cd / || exit 125; case ":$PATH:" in *:[!/]*) PATH={USUAL_PATH};; esac; export PATH; '
COMMAND = "VMTAX_COMMAND"  # an environment variable that differs for each command and its descendants
OURS = ": vmtax; "  # the beginning of a line that a login executes
# The only text that the login shell parses, whichever it is: csh changes newlines and exclamation marks between quotes,
# and fish backslashes. What is to be done comes in one line of standard input; lines before that are skipped.
# `read` takes no byte of the next line.
ENTRY = f'exec sh -c \'while IFS= read -r l; do case $l in "{OURS}"*) eval "$l";; esac; done; exit 125\''
# Lines for start-up files of a login that read standard input; and for those that replace the shell by another, which
# then reads its commands there.
FIRST = "\n" * 8 + f"{ENTRY}\n"
# What to look for if the entry is not executed.
NO_ENTRY = "after a login, its shell must execute commands, and start-up files leave standard input alone"


def for_login(script: str) -> str:
    """What to write to the standard input of ENTRY: a shell script without newlines, and `quoted` words."""
    return f'{FIRST}{OURS}n=$(printf "\\n."); n=${{n%.}}; {ANYWHERE}{script}\n'


def quoted(argv: Sequence[str]) -> str:
    """The words for a script of `for_login`; they may have newlines."""
    return " ".join('"$n"'.join(map(shlex.quote, word.split("\n"))) for word in argv)


BEGIN_SECONDS = 180.0  # for a remote process to report its start; a connection that is gone is noticed sooner
# Kills all processes of a command, $1 being its word, also those outside of its process group. Then prints which
# threads were killed and wait uninterruptibly, now and three seconds later: the name of each, then its stack in the
# kernel, which only root may read. SIGKILL is the 9th bit of the pending signals. Constant text.
END_COMMAND = (
    *("sh", "-c"),
    f'for file in $(grep -lzxF "{COMMAND}=$1" /proc/[0-9]*/environ 2> /dev/null); do pid="${{file#/proc/}}"; '
    'kill -KILL "${pid%/environ}" 2> /dev/null; done; sleep 2; '
    "waiting() { grep -l '^State:.D' \"$@\" 2> /dev/null | "
    "xargs -r grep -lE '^(SigPnd|ShdPnd):.*[13579bdf][0-9a-f]{2}$' 2> /dev/null; }; "
    'first="$(waiting /proc/[0-9]*/task/[0-9]*/status)"; [ "$first" ] || exit 0; sleep 3; '
    'for file in $(waiting $first); do cat "${file%/status}/comm" "${file%/status}/stack" 2> /dev/null; done; true',
    "sh",
)


class Begin:
    """The start of one command on the remote side: what ENTRY is given, and the first line of its two outputs, which
    has a word that no login prints.
    """

    def __init__(self, token: str, argv: Sequence[str]) -> None:
        self.word = secrets.token_hex(16)
        self._said = re.compile(rf"{self.word} (\d{{1,10}})\n")
        says = f'printf "{self.word} %s\\n" "$$"'
        # The run's mark comes by standard input, too, where no other user sees it. Followed by the command's own input.
        self.input = for_login(
            f"export {MARK}={token} LC_ALL=C.UTF-8 {COMMAND}={self.word}; {says}; {says} >&2; exec {quoted(argv)}"
        )

    def wait(self, pipe: IO[bytes]) -> int:
        """Its process id, after any output of the login. Raises MachineLost if it does not come."""
        deadline, before = time.monotonic() + BEGIN_SECONDS, b""
        try:
            while line := read_line(pipe, deadline, BANNER_BYTES):
                before += line
                if match := self._said.search(line.decode(errors="replace")):
                    return int(match[1])
                if len(before) > BANNER_BYTES:
                    break
        except TimeoutError:
            raise MachineLost(f"no answer within {BEGIN_SECONDS:.0f} s") from None
        except TooMuch:
            before = before or b"a line without an end"
        raise MachineLost(f"it was to begin, instead came {excerpt(before)}")

    def after(self, text: str) -> str | None:
        """The command's part of either whole output; None if the command did not start."""
        match = self._said.search(text)
        return text[match.end() :] if match else None
