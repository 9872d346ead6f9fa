"""What is said of the hosts of a fleet before anything is measured, by real ssh to a real sshd."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.machines
WITH_SSH_DIRECTORY = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of an sshd on this machine that knows the key in `tmp_path`/ssh."""
    keys = tmp_path / "ssh"
    keys.mkdir(mode=0o700)
    for name in ("id", "host_key", "other_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    settings = tmp_path / "sshd_config"
    settings.write_text(
        f"ListenAddress 127.0.0.1:{number}\nListenAddress 127.0.0.2:{number}\n"
        f"ListenAddress 127.0.0.3:{number}\nListenAddress [::1]:{number}\nHostKey {keys}/host_key\n"
        f"AuthorizedKeysFile {keys}/id.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    with subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(settings)], stderr=subprocess.DEVNULL) as server:
        try:
            while not _listens(number):
                time.sleep(0.05)
            key, other = ((keys / f"{name}.pub").read_text() for name in ("host_key", "other_key"))
            known = f"[127.0.0.1]:{number} {key}[::1]:{number} {key}[127.0.0.2]:{number} {other}"
            (keys / "known_hosts").write_text(known)
            (keys / "config").write_text(f"Host *\n IdentityFile {keys}/id\n BatchMode yes\n")
            yield number
        finally:
            server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_each_host_of_no_use_costs_one_line_and_the_others_nothing(port: int, tmp_path: Path) -> None:
    good, changed = f"ssh://root@127.0.0.1:{port}", f"ssh://root@127.0.0.2:{port}"
    twin, gone, odd = f"ssh://root@localhost:{port}", "ssh://root@127.0.0.4:9", "ssh://-oProxyCommand=x"
    stranger, ipv6 = f"ssh://root@127.0.0.3:{port}", f"ssh://root@[::1]:{port}"
    known = tmp_path / "ssh/known_hosts"
    known.write_text(f"{known.read_text()}[localhost]:{port} {(tmp_path / 'ssh/host_key.pub').read_text()}")
    (tmp_path / "hosts").write_text("\n".join(named := (changed, good, twin, ipv6, stranger, gone, odd)))
    user = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")
    user.mkdir(mode=0o700, exist_ok=True)
    private = ("unshare", "--mount", "sh", "-c", WITH_SSH_DIRECTORY, "sh", str(tmp_path / "ssh"), str(user))
    environment = {**os.environ, **{f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "STATE")}}
    argv = [*private, sys.executable, "-m", "vmtax", "fleet", "hosts", "--hosts", str(tmp_path / "hosts")]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 0 and [line.split(": ")[0] for line in lines] == [*named], lines
    said = dict(line.split(": ", 1) for line in lines)
    assert said[good] == "can be measured"
    assert said[twin] == said[ipv6] == f"is {good} under another name (machine-id), which is measured once"
    assert said[changed].startswith("its host key has changed, or another machine answers there"), said[changed]
    assert said[stranger] == "its host key is not in known_hosts: log in once by ssh"
    assert "Connection refused" in said[gone], said[gone]
    assert said[odd].startswith("its address must be local, ssh://")
