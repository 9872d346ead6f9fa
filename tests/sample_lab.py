"""Labs that are off, or up as far as their records tell, and a QEMU that answers at its socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from typer.testing import CliRunner

from vmtax.cli import app
from vmtax.lab.home import Lab, Record, Software, lab, write
from vmtax.lab.spec import Size, disk_files

SIZE = Size()
SOFTWARE = Software("10.0.2", "0123456789ab", "6.12.1", None, "tcg")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def made(name: str = "blue", size: Size = SIZE) -> Lab:
    """A lab that is off."""
    one = lab(name)
    one.directory.mkdir(parents=True)
    for path in disk_files(PurePosixPath(one.directory), size):
        Path(path).touch()
    write(one.directory / "lab.json", Record(size, SOFTWARE))
    return one


def saved(one: Lab) -> Lab:
    """That lab with a saved state."""
    one.saved.mkdir()
    for path in one.disks:
        (one.saved / path.name).write_text("as saved")
    for name in ("state", "key", "known-hosts"):
        (one.saved / name).touch()
    write(one.saved / "lab.json", Record(SIZE, SOFTWARE))
    return one


def quiet(event: object) -> None:
    pass


def told(*argv: str) -> str:
    """What `vmtax lab ...` prints, its lines joined."""
    return " ".join(CliRunner().invoke(app, ["lab", *argv]).output.split())


DONE = '{"return": {}}'


def _returns(value: object) -> str:
    return json.dumps({"return": value})


RUNS = _returns({"running": True, "status": "running"})
STILL = _returns({"running": False, "status": "io-error"})
FULL, FAILED = (_returns([{"io-status": "ok"}, {"io-status": how}]) for how in ("nospace", "failed"))


@contextlib.contextmanager
def qemu_that_says(path: Path, **answers: list[str]) -> Iterator[list[str]]:
    """A QMP server: to each command its next answer, the last again and again, "DONE" where it has none, with an event
    before it; the commands it was given."""
    asked: list[str] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, connection.makefile("rwb") as pipe:
                    pipe.write(b'{"QMP": {}}\n')
                    pipe.flush()
                    for line in pipe:
                        asked.append(json.loads(line)["execute"])
                        left = answers.get(asked[-1].replace("-", "_"), [DONE])
                        answer = left.pop(0) if len(left) > 1 else left[0]
                        pipe.write(b'{"event": "STOP"}\n' + answer.encode() + b"\n")
                        pipe.flush()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
