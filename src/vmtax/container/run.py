"""Start a container on a machine, and run commands in it, with crun or runc."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtax.container.bundle import DIRECTORY, Container, ContainerError, bind, configuration, mount_points
from vmtax.container.proof import READ_BACK, why_not_confined
from vmtax.container.seccomp import FILTER, read_filter, why_missing
from vmtax.core.machines import first_line
from vmtax.core.records import Json
from vmtax.machine import CommandFailed, Machine, Reader
from vmtax.machine.answer import whole_of, words_of
from vmtax.machine.packages import install

RUNTIMES = ("crun", "runc")  # in the order of preference
# A container keeps the outputs of the command that starts it, which would never end for us. Constant text.
DETACHED = ("sh", "-c", 'file=$1; shift; "$@" > "$file" 2>&1 || { cat "$file" >&2; exit 1; }', "sh")
# A runtime that is killed while it starts a container may leave cgroups that it does not know afterwards. One can be
# removed once its last process is gone. Constant text, the name stays an argument.
REMOVE_CGROUPS = (
    *("sh", "-c"),
    'for each in "/sys/fs/cgroup/$1" /sys/fs/cgroup/*/"$1"; do n=0; until ! test -d "$each" ||'
    ' find "$each" -depth -type d -exec rmdir {} +; do n=$((n+1)); test $n -lt 50 || exit 1; sleep 0.1; done'
    " 2> /dev/null; done",
    "sh",
)
# What the container in which a runtime is tried has of the machine, for the program that it runs.
OF_MACHINE = ("/usr", "/bin", "/lib", "/lib64")
PROBE_BYTES = 64 * 2**20
PRINT_MISSING = ("sh", "-c", 'cd "$1" && shift && for each; do test -e ".$each" || echo "$each"; done', "sh")
IS_BLOCK_DEVICE = "block special file"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program that starts containers."""

    name: str  # "crun" or "runc"
    version: str
    passed_over: str = ""  # why the preferred one was not taken; empty if it was, or if it is not installed


def why_not(reader: Reader) -> str | None:
    """Why no container can be started there, as far as can be read, and how to change that; None if it can."""
    if reader.try_run("id", "-u").stdout.strip() != "0":
        return "containers take root there"
    if not any(reader.try_run(name, "--version").ok for name in RUNTIMES):
        return f"neither crun nor runc is there: {install(reader, 'runc')}"
    return None if reader.try_run("test", "-r", FILTER).ok else why_missing(reader)


def find_runtime(machine: Machine) -> Runtime:
    """The preferred runtime that can start a container there. Raises ContainerError if none can.

    Each is tried: crun refuses machines with cgroups of both versions, and tells so only when it starts a container.
    """
    if (reason := why_not(machine)) is not None:
        raise ContainerError(f"{machine.path}: {reason}")
    refused: list[str] = []
    for name in RUNTIMES:
        outcome = machine.try_run(name, "--version")
        if not outcome.ok:
            continue
        said = words_of(machine, f"{name} --version", first_line(outcome.stdout))
        runtime = Runtime(name, said[-1], "; ".join(refused))
        try:
            _try(machine, runtime)
        except CommandFailed as failure:
            refused.append(f"{name} {runtime.version}: {first_line(failure.outcome.stderr)}")
        except ContainerError as failure:
            refused.append(f"{name} {runtime.version}: {failure}")
        else:
            return runtime
    raise ContainerError(f"{machine.path}: no container can be started: {'; '.join(refused)}")


def _try(machine: Machine, runtime: Runtime) -> None:
    """Start a container with the machine's own programs. Raises CommandFailed and ContainerError."""
    tree = machine.scratch / f"container-{runtime.name}-tree"
    said = machine.run("grep", "Cpus_allowed_list", "/proc/self/status")
    cpu = words_of(machine, "Cpus_allowed_list of /proc/self/status", said)[-1]
    token = machine.scratch.name.removeprefix("vmtax-")
    container = Container(f"try-{runtime.name}", str(tree), cpu, PROBE_BYTES, token)
    config = configuration(container, read_filter(machine, container.capabilities))
    config["mounts"] += [bind(path, path, "ro") for path in OF_MACHINE]
    undoing = machine.remove_later(tree)
    try:
        machine.run("mkdir", "-p", *(f"{tree}{path}" for path in mount_points(config)))
        with _started(machine, container, config, runtime):
            pass
    finally:
        undoing.undo()


@contextlib.contextmanager
def opened(machine: Machine, container: Container, runtime: Runtime) -> Iterator[tuple[str, ...]]:
    """Start the container; yields the prefix with which a command runs in it. It is gone at exit.

    Raises ContainerError if it is not confined as requested, and CommandFailed if it does not start.
    """
    config = configuration(container, read_filter(machine, container.capabilities), _device(machine, container))
    missing = machine.run(*PRINT_MISSING, container.tree, *mount_points(config)).strip()
    if missing:
        raise ContainerError(f"{machine.path}: {container.tree} has no {missing}, where the container mounts something")
    with _started(machine, container, config, runtime) as prefix:
        yield prefix


@contextlib.contextmanager
def _started(machine: Machine, container: Container, config: Json, runtime: Runtime) -> Iterator[tuple[str, ...]]:
    directory = machine.scratch / f"container-{container.name}"
    base = (runtime.name, "--root", str(directory / "state"))
    with contextlib.ExitStack() as stack:
        for undoing in (
            machine.remove_later(directory),
            machine.undo_later(*REMOVE_CGROUPS, container.cgroup),
            machine.undo_later(*base, "delete", "--force", container.name),
        ):
            stack.callback(undoing.undo)
        machine.run("mkdir", "-m", "700", str(directory))
        machine.write_text(directory / "config.json", json.dumps(config))
        start = (*base, "run", "--detach", "--bundle", str(directory), container.name)
        machine.run(*DETACHED, str(directory / "output"), *start)
        # Not one `run` for each command: it takes 51 ms with crun (exec: 27), 70 with runc (exec: 54), and varies more.
        prefix = (*base, "exec", *_settings(container), container.name)
        difference = why_not_confined(container, machine.run(*prefix, *READ_BACK))
        if difference is not None:
            raise ContainerError(f"{machine.path}: container {container.name} is not confined: {difference}")
        yield prefix


def end_commands(machine: Machine, prefix: Sequence[str]) -> None:
    """End all commands in a container: one whose runtime was killed, because its time was up, would go on."""
    machine.run(*prefix, "sh", "-c", "kill -9 -1")  # all but the caller and the container's first process


def _settings(container: Container) -> Iterator[str]:
    """What a command must be given again: crun does not take it from the container."""
    yield "--no-new-privs"
    yield from ("--cwd", DIRECTORY)
    for variable in container.environment:
        yield from ("--env", variable)


def _device(machine: Machine, container: Container) -> tuple[int, int] | None:
    """Major and minor number of the container's data, if it is a block device."""
    if container.data is None:
        return None
    what = f"kind and numbers of {container.data}"
    said = machine.run("stat", "-L", "-c", "%F,%t,%T", container.data)
    kind, major, minor = words_of(machine, what, said, 3, ",")
    if kind != IS_BLOCK_DEVICE:
        return None
    return whole_of(machine, what, major, base=16), whole_of(machine, what, minor, base=16)
