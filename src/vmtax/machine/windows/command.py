"""One command on Windows behind ssh: the line that a login's shell executes, and its two outputs. Pure.

As on Linux, both outputs begin with a word that no login prints. Standard output also ends with that word, then the
exit code: ssh carries a byte of it, and codes of Windows have 32 bits.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath

from vmtax.machine.login_shell import LoginShell
from vmtax.machine.windows.command_line import encoded, quoted
from vmtax.machine.windows.text import UTF8, decoded

# Starts cmd.exe with a line that PowerShell itself does not parse; its pipes and its exit code are those of cmd.exe.
_FROM_POWERSHELL = (
    "$i=New-Object Diagnostics.ProcessStartInfo;$i.FileName='cmd.exe';$i.Arguments='/c \"{}\"';"
    "$i.UseShellExecute=$false;$p=[Diagnostics.Process]::Start($i);$p.WaitForExit();exit $p.ExitCode"
)
MOST_OF_POWERSHELL = 32_000  # characters of a line that is not for cmd.exe; CreateProcess takes 32,767


@dataclass(frozen=True, slots=True)
class WindowsOutcome:
    """What a command printed, and how it ended."""

    stdout: str
    stderr: str
    code: int | None  # signed, 32 bits; None: it did not end, or the connection did before


class WindowsCommand:
    """A command for one execution."""

    def __init__(
        self, line: str, shell: LoginShell, directory: PureWindowsPath | None = None, *, keeps_page: bool = False
    ) -> None:
        """`line`: what cmd.exe executes, in that directory; None: where a login begins. `keeps_page`: UTF-8 is not
        asked for.
        """
        self.word = f"vmtax-{secrets.token_hex(12)}-w"  # ends in no digit, which `>` would take for a file descriptor
        page = "" if keeps_page else f"chcp {UTF8} >nul& ver >nul& "
        where = f'cd /d "{directory}"&& ' if directory else ""
        # The caret keeps the variable until `call` expands it, after the command.
        whole = f"echo {self.word}& >&2 echo {self.word}& {page}{where}{line}& call echo {self.word} %^errorlevel%"
        if shell == "PowerShell":
            doubled = whole.replace("'", "''")
            whole = encoded(_FROM_POWERSHELL.format(doubled), MOST_OF_POWERSHELL)
        self.line = whole

    @classmethod
    def of(cls, argv: Sequence[str], shell: LoginShell, directory: PureWindowsPath | None = None) -> WindowsCommand:
        """Raises BadCommandLine."""
        return cls(quoted(argv), shell, directory)

    def ended(self, stdout: bytes, stderr: bytes, page: int | None) -> WindowsOutcome | None:
        """What both outputs of a login say; None if the command did not begin. `page`: the console's code page."""
        word = self.word.encode()
        begin = re.compile(re.escape(word) + rb" *\r*\n")
        out, err = begin.search(stdout), begin.search(stderr)
        if out is None:
            return None
        rest = stdout[out.end() :]
        last = re.search(rb"(?s:.*)" + re.escape(word) + rb" (-?\d{1,11})[ \r\n]*\Z", rest)
        code = int(last[1]) if last else None
        said = rest[: rest.rindex(word)] if last else rest
        return WindowsOutcome(decoded(said, page), decoded(stderr[err.end() :] if err else stderr, page), code)
