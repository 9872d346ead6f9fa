"""The peer's SMB server with the real smbd, in a network of its own: where it is, what it shows, how much it takes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS
from vmtax.hypervisor.confine import MOST_FILES, enter_tree
from vmtax.image.cache import Image
from vmtax.workload.site import Access
from vmtax.workload.smb import Smb, SmbParameters

ALONE = ("unshare", "-n", "sh", "-c", 'ip link set lo up && ip address add 10.77.0.1/32 dev lo && exec "$@"', "sh")
PORT = 7201


class Serving:
    """A server of 16 MiB for each of two cases."""

    def __init__(self, image: Image, directory: Path) -> None:
        self.tree = str(image.tree)
        self.access = Access.random()
        self.known = directory / "known"
        self.known.write_text(f"username={self.access.user}\npassword={self.access.password}\n")
        (self.server,) = Smb(SmbParameters(size="16MiB")).servers("10.77.0.1", PORT - 2000, self.access)
        how = {"capabilities": self.server.capabilities, "room": self.server.room}
        inside = (*enter_tree(self.tree, root=True, network=True, **how), "--", *self.server.argv)  # type: ignore[arg-type]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen((*ALONE, *inside), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(self.server.input.encode())
        self.process.stdin.flush()
        self.digest = self.process.stdout.readline().decode().split()[0]

    @property
    def root(self) -> Path:
        """Its files."""
        pid = self.process.pid
        while below := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(below[0])
        return Path(f"/proc/{pid}/root")

    def client(self, share: str, *commands: str, login: str = "") -> subprocess.CompletedProcess[str]:
        """smbclient's answer to these commands, beside the server. `login`: its options; by default the right ones."""
        known = login or f"--authentication-file={self.known}"
        words = ("smbclient", f"//10.77.0.1/{share}", f"--port={PORT}", "--max-protocol=SMB3", *known.split())
        inside = ("nsenter", f"--target={self.process.pid}", "--net", *words)
        text = "".join(f"{command}\n" for command in commands)
        return subprocess.run(
            inside, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANGS
        )

    def used(self) -> tuple[int, int]:
        """Bytes and files of the shares' file system, directories included."""
        found = os.statvfs(self.root / "tmp")
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree

    def listening(self) -> set[str]:
        """Where, as the kernel writes it: address in hexadecimal, port."""
        rows = Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]
        return {row.split()[1] for row in rows if row.split()[3] == "0A"}


@pytest.fixture
def serving(image: Image, tmp_path: Path) -> Iterator[Serving]:
    one = Serving(image, tmp_path)
    try:
        end = time.monotonic() + HANGS
        while not one.listening() and time.monotonic() < end:
            assert one.process.poll() is None
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def test_a_share_is_bounded_and_no_command_line_shows_what_opens_it(serving: Serving) -> None:
    assert serving.listening() == {f"01004D0A:{PORT:04X}"}, "10.77.0.1 only"
    file = serving.root / "tmp/smb/in/in"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == serving.digest
    assert [path.name for path in file.parent.iterdir()] == ["in"], "no digest lies beside it"
    secrets = (serving.access.user.encode(), serving.access.password.encode())
    lines = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines += path.read_bytes()
    assert not any(secret in lines for secret in secrets)
    written = 0
    with (
        pytest.raises(OSError, match="No space left"),
        (serving.root / "tmp/smb/out/out").open("wb", buffering=0) as out,
    ):
        while True:
            written += out.write(bytes(2**20))
    assert serving.server.room is not None and 2**24 <= written <= serving.server.room


@pytest.mark.machines
@pytest.mark.parametrize(
    "login",
    [
        "-N",
        "-U%",
        "-Uroot%",
        "-Uroot%root",
        "-Uguest%",
        "-Unobody%",
        "-U{user}%",
        "-U{user}%wrong",
        "-Uroot%{password}x",
    ],
)
def test_nobody_enters_a_share_without_its_password(serving: Serving, login: str) -> None:
    words = login.format(user=serving.access.user, password=serving.access.password)
    for share in ("in", "out", "IPC$"):
        answer = serving.client(share, "ls", login=words)
        assert answer.returncode and "NT_STATUS_" in answer.stdout and "blocks of size" not in answer.stdout
    assert serving.client("in", "ls").returncode == 0, "who knows it still does"


@pytest.mark.machines
def test_what_is_read_cannot_be_written(serving: Serving, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(b"other")
    tries = (
        f"put {own} in",
        f"put {own} more",
        "rm in",
        "rename in other",
        "mkdir more",
        "symlink in link",
        "hardlink in link",
    )
    for each in (*tries, "setmode in +h", "truncate in 5"):
        serving.client("in", each)
    file = serving.root / "tmp/smb/in/in"
    assert [path.name for path in file.parent.iterdir()] == ["in"]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == serving.digest
    copy = tmp_path / "copy"
    serving.client("in", f"get in {copy}")
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == serving.digest


@pytest.mark.machines
def test_a_client_cannot_write_more_than_the_size_in_one_file_or_in_many(serving: Serving, tmp_path: Path) -> None:
    assert serving.server.room is not None
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(4 * serving.server.room)
    answer = serving.client("out", f"put {large} out")
    assert "NT_STATUS_DISK_FULL" in answer.stdout
    serving.client("out", *(f"put {large} out{number}" for number in range(3)))
    assert serving.used()[0] <= serving.server.room
    serving.client("out", "rm out", *(f"rm out{number}" for number in range(3)))
    small = tmp_path / "small"
    small.write_bytes(b"honest")
    assert serving.client("out", f"put {small} out").returncode == 0, "an honest client has room again"
    assert (serving.root / "tmp/smb/out/out").read_bytes() == b"honest"


@pytest.mark.machines
@pytest.mark.parametrize("what", ["mkdir {name}", "put {empty} {name}", "mkdir {deep}"])
def test_a_client_cannot_make_more_files_than_a_few(serving: Serving, tmp_path: Path, what: str) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    words = [
        what.format(name=f"file{number}", empty=empty, deep="/".join(["d"] * (number + 1)))
        for number in range(2 * MOST_FILES)
    ]
    answer = serving.client("out", *words)
    assert "NT_STATUS_" in answer.stdout
    assert serving.used()[1] <= MOST_FILES
    assert serving.client("in", "ls").returncode == 0, "and the server goes on"


@pytest.mark.machines
@pytest.mark.parametrize(
    "name", ["../in/in", "../../../run/smb.conf", "../../smb.conf", "/run/smb/users", "link/smb.conf"]
)
def test_a_client_sees_nothing_else_of_the_server(serving: Serving, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    serving.client("out", "symlink ../../../run link", f"get {name} {copy}")
    assert not copy.exists() or not copy.read_bytes()
