"""The peer's SMB server with the real smbd, in a network of its own: where it is, what it shows, how much it takes."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.cache import Image
from vmtax.workload.site import Access
from vmtax.workload.smb import Smb, SmbParameters

ALONE = ("unshare", "-n", "sh", "-c", 'ip link set lo up && ip address add 10.77.0.1/32 dev lo && exec "$@"', "sh")
PORT = 7201


class Serving:
    """A server of 16 MiB for each of two cases."""

    def __init__(self, image: Image) -> None:
        self.tree = str(image.tree)
        self.access = Access.random()
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

    def listening(self) -> set[str]:
        """Where, as the kernel writes it: address in hexadecimal, port."""
        rows = Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]
        return {row.split()[1] for row in rows if row.split()[3] == "0A"}


@pytest.fixture
def serving(image: Image) -> Iterator[Serving]:
    one = Serving(image)
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
