"""Command lines for Windows: what cmd.exe makes of a line, and a program of its part of it. Pure.

Windows passes a program one line, which the program splits by itself, mostly by the rules of CommandLineToArgvW:
https://learn.microsoft.com/en-us/windows/win32/api/shellapi/nf-shellapi-commandlinetoargvw. Before that, cmd.exe reads
the line by rules of its own, in which a caret takes the meaning from the next character.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Sequence

from vmtax.core.machines import MachineError

# cmd.exe takes 8191 characters, https://learn.microsoft.com/en-us/troubleshoot/windows-client/shell-experience; sshd
# adds the path of cmd.exe and its option.
MOST_CHARACTERS = 8000
CARETED = '()%!^"<>&|'
_WITH_CARETS = str.maketrans({each: f"^{each}" for each in CARETED})
_PLAIN_PROGRAM = re.compile(r"[\w.:\\/-]+")
POWERSHELL = (*("powershell", "-NoLogo", "-NoProfile", "-NonInteractive", "-OutputFormat", "Text", "-EncodedCommand"),)


class BadCommandLine(MachineError):
    """These arguments cannot be passed; the text says why, and what can be done instead."""


def quoted(argv: Sequence[str]) -> str:
    """The line with which cmd.exe starts argv[0] such that it gets exactly these arguments. Raises BadCommandLine.

    A percent sign is refused, because no caret keeps `cmd /c` from replacing a variable whose name happens to exist.
    """
    program, *words = argv
    for word in argv:
        _refuse(word)
    if '"' in program:
        raise BadCommandLine(f"{shortened(program)}: the name of a program on Windows cannot have a quotation mark")
    # With carets before its quotation marks, the name would end at its first space.
    name = program if _PLAIN_PROGRAM.fullmatch(program) else f'"{program}"'
    line = " ".join([name, *(subprocess.list2cmdline([word]).translate(_WITH_CARETS) for word in words)])
    return _short_enough(line, program)


def encoded(script: str, most: int = MOST_CHARACTERS) -> str:
    """The line that has PowerShell execute a script, whatever characters that has. Raises BadCommandLine.

    A policy of execution is about files, and does not apply to it.
    """
    text = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
    return _short_enough(" ".join((*POWERSHELL, text)), "a script for PowerShell", most)


def shortened(text: str) -> str:
    """For a message."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _refuse(word: str) -> None:
    if "%" in word:
        raise BadCommandLine(
            f"{shortened(word)}: cmd.exe would replace what stands between two percent signs, so an argument on Windows"
            " cannot have one: use a name without it, or write it to a file there"
        )
    if any(each < " " and each != "\t" for each in word):
        raise BadCommandLine(
            f"{shortened(word)}: for cmd.exe a line ends at a newline, so an argument on Windows cannot have control"
            " characters: write it to a file there"
        )


def _short_enough(line: str, what: str, most: int = MOST_CHARACTERS) -> str:
    if len(line) > most:
        raise BadCommandLine(
            f"{shortened(what)}: its command line has {len(line)} characters, and Windows takes {most} of us:"
            " write the arguments to a file there"
        )
    return line
