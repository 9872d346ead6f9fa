"""A Windows as vmtax sees one: a real sshd on loopback, behind which commands go to Wine's cmd.exe.

sshd hands the command's text to tests/windows/launch.c, which starts cmd.exe as the OpenSSH server of Windows does, and
files to its real sftp server, which sees drive C as Windows' own shows it. It proves nothing about PowerShell, which
Wine does not have, nor about scheduled tasks when they are due.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.command import HANGS
from vmtax.machine.ssh import SshRoute
from vmtax.store import Store

SOURCES = Path(__file__).parent / "windows"
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# Gives the command a private ~/.ssh and changes no other: constant text, the arguments stay arguments.
WITH_SSH_DIRECTORY = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
# Exit codes of more than a byte, which is all that ssh carries; bytes that a program prints, and their text.
EXIT_CODES = (0, 7, 255, 256, -1073741819)
ENCODED = (
    ("ä".encode("utf-16"), "ä"),
    ("ä日".encode(), "ä日"),
    (b"a\r\nb\r\n", "a\nb\n"),
    ("ab".encode("utf-16-le"), "ab"),
)
COMPILER = "x86_64-w64-mingw32-gcc-posix"
LOGIN = r"""#!/bin/sh
export WINEPREFIX='{prefix}' WINEDEBUG=-all
cd '{prefix}/drive_c/users' || exit 1
case $SSH_ORIGINAL_COMMAND in
    /usr/lib/openssh/sftp-server)
        exec bwrap --ro-bind /usr /usr --symlink usr/lib64 /lib64 --symlink usr/lib /lib --symlink usr/bin /bin \
            --proc /proc --dev /dev --ro-bind /etc/passwd /etc/passwd --bind '{prefix}/drive_c' /C: \
            /usr/lib/openssh/sftp-server ;;
esac
line=$(mktemp '{prefix}/line-XXXXXXXX')
printf '%s' "$SSH_ORIGINAL_COMMAND" > "$line"
export LINE="Z:$line"
exec wine '{launch}'
"""


@dataclass(frozen=True)
class WindowsHost:
    """Reached at a port of this machine."""

    directory: Path
    port: int

    @property
    def route(self) -> SshRoute:
        known = ("-o", f"UserKnownHostsFile={self.directory}/known_hosts", "-i", f"{self.directory}/id")
        return SshRoute("root@127.0.0.1", ("-F", "none", "-p", str(self.port), "-o", "BatchMode=yes", *known))

    @property
    def drive(self) -> Path:
        """Its drive C."""
        return self.directory / "prefix/drive_c"

    def vmtax(self, *argv: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """`vmtax ARGV` of a user whose ssh configuration knows this host as `win`."""
        ssh = directory / "ssh"
        ssh.mkdir(mode=0o700)
        (ssh / "config").write_text(
            f"Host win\n HostName 127.0.0.1\n Port {self.port}\n User root\n IdentityFile {self.directory}/id\n"
            f" UserKnownHostsFile {self.directory}/known_hosts\n BatchMode yes\n"
        )
        home = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")  # where ssh looks, whatever HOME says
        home.mkdir(mode=0o700, exist_ok=True)
        private = ("unshare", "--mount", "sh", "-c", WITH_SSH_DIRECTORY, "sh", str(ssh), str(home))
        command = [*private, sys.executable, "-m", "vmtax", *argv]
        return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=HANGS)

    @property
    def ours(self) -> list[str]:
        """Directories of vmtax where a login begins."""
        return sorted(path.name for path in (self.drive / "users/root").glob("vmtax-*"))

    @property
    def tasks(self) -> list[str]:
        """Names of the scheduled tasks of vmtax."""
        return sorted(path.name for path in (self.drive / "windows/system32/tasks").glob("vmtax-*"))


def measured(done: subprocess.CompletedProcess[str], *workloads: str) -> dict[str, Any]:
    """What `vmtax run --json` answered, after a look at its trials: all of these on host and VM, and none failed."""
    assert done.returncode == 0, done.stderr
    run: dict[str, Any] = json.loads(done.stdout)["data"]
    with Store() as store:
        trials = store.load(run["id"], with_raw=True).trials
    assert [(trial.treatment, trial.case, trial.error, trial.raw) for trial in trials if trial.status != "ok"] == []
    layers = ("host", "existing", "existing again")
    assert {(one.treatment, one.workload) for one in trials} == {
        (layer, name) for layer in layers for name in workloads
    }
    return run


def compile_program(source: str, target: Path) -> None:
    """A program of tests/windows for Windows."""
    command = [COMPILER, "-O", "-Wall", "-Werror", "-o", str(target), str(SOURCES / source), "-lshell32"]
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def windows_host(directory: Path) -> Iterator[WindowsHost]:
    """It answers when the context begins."""
    with wine(directory / "prefix"), _sshd(directory) as host:
        yield host


@contextlib.contextmanager
def wine(prefix: Path) -> Iterator[dict[str, str]]:
    """The environment in which Wine's programs have that directory, with its drives, as their Windows."""
    environment = {**os.environ, "WINEPREFIX": str(prefix), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
    # Services start only in a new session, and it lasts.
    wait, stay = ("wineserver", "-w"), ("wineserver", "-p")
    for command in (("wineboot", "-i"), wait, ("winecfg", "-v", "win10"), wait, stay):
        # Without pipes, which the server of Wine would keep open
        subprocess.run(command, env=environment, check=True, **QUIET, timeout=HANGS)
    try:
        yield environment
    finally:
        subprocess.run(("wineserver", "-k"), env=environment, timeout=HANGS, **QUIET)


@contextlib.contextmanager
def _sshd(directory: Path) -> Iterator[WindowsHost]:
    prefix, launch, login = directory / "prefix", directory / "launch.exe", directory / "login"
    compile_program("launch.c", launch)
    login.write_text(LOGIN.format(prefix=prefix, launch=launch))
    login.chmod(0o755)
    for name in ("id", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {(directory / 'host_key.pub').read_text()}")
    configuration = directory / "sshd_config"
    configuration.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {directory}/host_key\nAuthorizedKeysFile {directory}/id.pub\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nForceCommand {login}\n"
        "Subsystem sftp /usr/lib/openssh/sftp-server\nMaxSessions 10\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    assert sshd, "openssh-server is installed"
    server = subprocess.Popen([sshd, "-D", "-e", "-f", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_listens(port)
        yield WindowsHost(directory, port)
    finally:
        server.terminate()
        server.wait(HANGS)


def _wait_until_it_listens(port: int) -> None:
    limit = time.monotonic() + HANGS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < limit, "sshd does not listen"
            time.sleep(0.05)
