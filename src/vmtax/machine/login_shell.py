"""Which shell a login over ssh has: a POSIX shell, or one of Windows. Pure."""

from __future__ import annotations

from typing import Literal

from vmtax.core.machines import MachineLost

LoginShell = Literal["cmd.exe", "PowerShell"]
# cmd.exe replaces the first half, PowerShell the second one, a POSIX shell the `$env`, which is empty there.
PROBE = "echo %OS%$env:OS"
_ANSWERS: dict[str, LoginShell] = {"Windows_NT$env:OS": "cmd.exe", "%OS%Windows_NT": "PowerShell"}
NEVER_RUN = "never run on Windows itself, only on Wine"
WHERE_WINDOWS = (
    "`vmtax run` measures Windows as a VM of yours, --guest ssh://user@host, or as a host, --host; `vmtax doctor"
    f" ssh://user@host` looks at a VM, `vmtax doctor --host` at a host of Hyper-V ({NEVER_RUN})"
)


def windows_shell(answer: str) -> LoginShell | None:
    """The shell of Windows that answered PROBE so, perhaps after a banner; None: it is another one."""
    for line in answer.replace("\0", "").splitlines():
        if (shell := _ANSWERS.get(line.strip('\ufeff \r\t"'))) is not None:
            return shell
    return None


class WindowsThere(MachineLost):
    """A login reached Windows where a POSIX shell is needed."""

    def __init__(self, path: str, destination: str, shell: LoginShell) -> None:
        self.path = path
        super().__init__(f"{path}: ssh {destination}: is Windows, whose shell is {shell}: {WHERE_WINDOWS}")
        self.shell: LoginShell = shell
