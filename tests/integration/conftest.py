"""Real machines for the tests: this host, the root image, and guests booted once for many tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command import HANGS
from vmtax.hypervisor import BootFailed, Credentials, Guest, GuestSpec, Qemu, boot
from vmtax.image import build, zfs
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.image.place import Placed, place
from vmtax.machine import Machine
from vmtax.machine.local import LocalMachine
from vmtax.machine.processes import marked
from vmtax.store import Store
from vmtax.system.paths import state_home

VMTAX = (sys.executable, "-m", "vmtax")


@pytest.fixture(scope="session", autouse=True)
def _own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Results and undo lists of tests go nowhere near the user's; the image cache is the user's, to be quick."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("the integration tests make bridges and namespaces: run them as root")


@pytest.fixture(scope="session")
def image() -> Image:
    return build.ensure(lambda event: None)


@pytest.fixture(scope="session")
def zfs_pack(image: Image) -> Pack:
    """For that image's kernel, built in minutes where the cache has none."""
    return zfs.ensure(image, lambda event: None)


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    machine = LocalMachine()
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def shared_local() -> Iterator[LocalMachine]:
    """For what several tests use; tests about ends and failures make their own."""
    machine = LocalMachine()
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def credentials(shared_local: LocalMachine) -> Credentials:
    return Credentials.make(shared_local)


@pytest.fixture(scope="session")
def placed(shared_local: LocalMachine, image: Image) -> Placed:
    return place(shared_local, shared_local, image, lambda event: None)


@pytest.fixture(scope="session")
def qemu(shared_local: LocalMachine, placed: Placed) -> Qemu:
    assert placed.tree is not None
    return Qemu.of_image(shared_local, placed.tree)


@pytest.fixture(scope="session")
def spec(placed: Placed, qemu: Qemu) -> GuestSpec:
    """A small emulated guest."""
    return GuestSpec(
        name="vm",
        vcpus=2,
        memory_bytes=512 * 2**20,
        accelerator="tcg",
        hypervisor=qemu,
        kernel=placed.kernel,
        initrd=placed.initrd,
        root=placed.root,
    )


@contextlib.contextmanager
def booted(
    parent: Machine,
    spec: GuestSpec,
    credentials: Credentials,
    local: LocalMachine,
    attach: Callable[[], None] | None = None,
) -> Iterator[Guest]:
    """A guest, at the second attempt if need be, as in a run: emulation on a busy machine loses one now and then."""
    with contextlib.ExitStack() as stack:
        try:
            guest = stack.enter_context(boot(parent, spec, credentials, local, attach=attach))
        except BootFailed:
            guest = stack.enter_context(boot(parent, spec, credentials, local, attach=attach))
        yield guest


def vmtax(
    *argv: str, directory: Path, timeout: float = HANGS, preexec_fn: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*VMTAX, *argv], cwd=directory, capture_output=True, text=True, timeout=timeout, preexec_fn=preexec_fn
    )


def measured(*argv: str, directory: Path) -> Any:
    """`data` of the JSON that an emulated run prints, in which nothing failed."""
    done = vmtax("run", *argv, "--yes", "--emulate", "--json", directory=directory)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    with Store() as store:
        trials = store.load(data["id"], with_raw=True).trials
    # With the raw output, because a failure that is rare may not be seen again.
    assert [(trial.treatment, trial.case, trial.error, trial.raw) for trial in trials if trial.status != "ok"] == []
    return data


def _default_signals() -> None:
    """vmtax leaves an ignored signal ignored, and the tests may run under nohup or in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def under_way(
    *argv: str, directory: Path, trials: int, command: Sequence[str] = VMTAX
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `vmtax run` that has `trials` trials in the store, and its token; it is ended at exit if it still runs."""
    lists = state_home() / "undo"
    before = set(lists.glob("*.undo"))
    process = subprocess.Popen(
        [*command, *argv],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_default_signals,
    )
    try:
        _wait_for_trials(process, trials)
        (token,) = {path.stem for path in set(lists.glob("*.undo")) - before}
        yield process, token
    finally:
        process.kill()
        process.communicate()


def _wait_for_trials(process: subprocess.Popen[str], count: int) -> None:
    deadline = time.monotonic() + HANGS
    while time.monotonic() < deadline and process.poll() is None:
        with Store() as store:
            newest = next(iter(store.experiments()), None)
        if newest is not None and newest.state == "running" and newest.ok >= count:
            return
        time.sleep(0.1)
    pytest.fail(f"no {count} trials: {process.stderr.read() if process.poll() is not None else f'after {HANGS:.0f} s'}")


def qemu_of(token: str) -> int:
    """The process id of the one QEMU of a run; that of bubblewrap, which is around an image's, is another."""
    (pid,) = qemus_of(token)
    return pid


def qemus_of(token: str) -> list[int]:
    """The process ids of all QEMUs of a run on this machine."""
    found = []
    for pid in marked(token):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text().startswith("qemu-system"):
                found.append(pid)
    return found


def command_line(pid: int | str) -> str:
    """The arguments of a process with blanks between them, "" where it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").rstrip()
    except OSError:
        return ""


def leftovers(token: str) -> list[str]:
    """What a run with this token left on this machine."""
    found = [str(path) for base in ("/tmp", "/var/tmp", "/run") for path in Path(base).glob(f"*{token}*")]
    found += [str(path) for path in Path("/run/netns").glob(f"*{token[:6]}*")]
    found += [str(path) for path in Path("/sys/class/net").glob(f"*{token[:6]}*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"VMTAX_RUN={token}".encode() in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(f"{process.name}: {command}")
        except OSError:
            continue
    return found
