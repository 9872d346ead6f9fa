"""The commands `vmtax lab`: a guest that serves as a host to try things on."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, agree, answer, app, fail, say, say_wrapped, warn
from vmtax.cli.command import App
from vmtax.core.errors import INTERRUPTED, CannotDo
from vmtax.core.units import format_value
from vmtax.system.packages import install_here

DEFAULT_NAME = "lab"
NEW = {"memory": "4GiB", "vcpus": "2", "spares": "4", "spare size": "4GiB"}  # as in lab.spec.Size; a test compares them

if TYPE_CHECKING:
    from vmtax.lab.home import Lab, Up
    from vmtax.lab.start import Wish
    from vmtax.report.answers.lab import LabState

HELP = "Start and use a lab: a guest that is a whole hypervisor host, with KVM, disks and networks to try things on."
lab_app = App(help=HELP, no_args_is_help=True)
app.add_typer(lab_app, name="lab")


def _complete(incomplete: str) -> list[str]:
    from vmtax.lab.names import lab_names

    try:
        return [name for name in lab_names() if name.startswith(incomplete)]
    except (CannotDo, OSError):
        return []  # the command itself will report the error


Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help=f"The lab's name. Default: {DEFAULT_NAME}.", autocompletion=_complete)
]


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What a lab is started with."""

    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help=f"Memory, such as 6GiB. Default: {NEW['memory']}.")
    ] = None
    vcpus: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="NUMBER", help=f"CPUs. Default: {NEW['vcpus']}.")
    ] = None
    spares: Annotated[
        int | None,
        typer.Option(
            min=0, max=16, metavar="NUMBER", help=f"Empty disks for storage under test. Default: {NEW['spares']}."
        ),
    ] = None
    spare_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=f"Size of each empty disk. Default: {NEW['spare size']}."),
    ] = None
    nvme: Annotated[
        bool | None, typer.Option("--nvme", help="One more empty disk, as NVMe. Such a lab cannot be saved.")
    ] = None
    kernel_arguments: Annotated[
        str,
        typer.Option(
            metavar="ARGUMENTS", help="Arguments for its kernel, in this start alone, such as mitigations=off."
        ),
    ] = ""
    log_writes: Annotated[
        bool,
        typer.Option(
            "--log-writes",
            help="Log all writes to the empty disks in this start; plan durability then tries power cuts of the whole"
            " lab.",
        ),
    ] = False
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="NAME",
            help="Share the network of this lab, which is up, in this start: two hosts on one switch.",
            autocompletion=_complete,
        ),
    ] = ""
    source: Annotated[str, typer.Option("--from", metavar="NAME", help="Start from the saved state of this lab.")] = ""


@lab_app.command("start")
def lab_start(
    name: Name = "",
    *,
    options: LabOptions,
    json: AsJson = False,
) -> None:
    """Start a lab, and make it the first time. It stays up until it is stopped, also when this terminal is closed.

    The defaults are those of a new lab. One that exists keeps its disks, and its memory and CPUs unless they are given.
    """
    from vmtax.experiment import progress
    from vmtax.lab.home import lab
    from vmtax.lab.start import start

    wish = _wish(options)
    one = lab(name)
    began = time.time()
    try:
        with progress.open_screen() as emit:
            up = start(one, wish, emit, lab(options.source) if options.source else None)
    except KeyboardInterrupt:  # as in run
        kept = (
            f"lab {one.name} is up: vmtax lab stop {one.name}" if one.up() else "everything that was set up is removed"
        )
        fail(f"interrupted; {kept}", INTERRUPTED)
    for line in up.warnings:
        warn(line)
    if json:
        answer("lab", _data(one))
    elif up.started < began:
        say(f"lab {one.name} was paused, as happens when the disk here is full; it continues now")
    else:
        _say_up(one, up)


def _wish(asked: LabOptions) -> Wish:
    """The options, checked. Raises BadUse."""
    from vmtax.lab.start import Wish

    memory, spare = _size("--memory", asked.memory), _size("--spare-size", asked.spare_size)
    words = _arguments(asked.kernel_arguments)
    return Wish(asked.vcpus, memory, asked.spares, spare, asked.nvme, words, asked.log_writes, asked.link)


def _say_up(one: Lab, up: Up) -> None:
    how = "restored" if up.restored else "booted"
    say(f"lab {one.name} is up, {how} in {up.ready_seconds:.1f} s; {_in_it(one)}")
    if one.record().software.zfs is None:
        say("it has no ZFS: `vmtax image zfs` builds it; then start the lab again")


def _arguments(text: str) -> tuple[str, ...]:
    from vmtax.design.host import ARGUMENTS

    words = " ".join(text.split())
    if words and not re.fullmatch(ARGUMENTS, words):
        raise BadUse(f"--kernel-arguments {text!r}: must be kernel arguments such as mitigations=off, 8 at most")
    return tuple(words.split())


def _size(option: str, text: str | None) -> int | None:
    """The size in bytes."""
    from vmtax.core.units import parse_bytes

    if text is None:
        return None
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise BadUse(f"{option} {error}") from error
    if not 512 * 2**20 <= size <= 2**50:
        raise BadUse(f"{option} must be from 512MiB to 1PiB, not {text}")
    return -(-size // 2**20) * 2**20  # whole MiB, because QEMU accepts no other sizes


def _in_it(one: Lab) -> str:
    """What can be done with the lab, as a hint."""
    return f"vmtax run --host {_host(one)}, vmtax lab ssh{'' if one.name == DEFAULT_NAME else f' {one.name}'}"


def _host(one: Lab) -> str:
    return DEFAULT_NAME if one.name == DEFAULT_NAME else f"lab:{one.name}"


@lab_app.command("ssh", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def lab_ssh(
    name: Name = "",
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The command to run there.")
    ] = None,
) -> None:
    """Log in to a lab, or run a command there."""
    from vmtax.lab.home import lab
    from vmtax.lab.reach import route

    way = route(lab(name))
    sys.stdout.flush()
    command = command[1:] if command and command[0] == "--" else command
    words = ["--", *command] if command else []  # joined by spaces for the remote shell, as ssh does
    try:
        os.execvp("ssh", ["ssh", *way.options, way.destination, *words])
    except OSError as error:
        raise CannotDo(f"ssh: {error.strerror}: {install_here('ssh')}") from error


@lab_app.command("status")
def lab_status(name: Name = "", json: AsJson = False) -> None:
    """Show a lab: its size, software and disks, and whether it is up."""
    from vmtax.lab.home import lab

    one = lab(name)
    one.record()
    if json:
        answer("lab", _data(one, _still(one, one.up())))
        return
    for what, text in _lines(one):
        say_wrapped(text, first=f"{what:>10}  ", indent=12)


def _lines(one: Lab) -> list[tuple[str, str]]:
    from vmtax.lab.write_logs import spare_logs

    record, up = one.record(), one.up()
    still = _still(one, up)
    size, software = record.size, record.software
    cpus = f"{size.vcpus} CPU{'' if size.vcpus == 1 else 's'}"
    disks = (
        f"{one.directory}, {_bytes(sum(path.stat().st_blocks * 512 for path in one.disks if path.exists()))} of it used"
    )
    lines = [
        ("lab", f"{one.name}, {f'up, but {still}' if still else 'up' if up else 'off'}"),
        (
            "machine",
            f"{cpus}, {_gib(size.memory_bytes)}, {software.accelerator.upper()}",
        ),
        ("software", f"QEMU {software.qemu}, Linux {software.kernel}, {_zfs(software.zfs)}"),
        (
            "disks",
            f"{size.spares} spare, of {_gib(size.spare_bytes)} each{', one NVMe' if size.nvme else ''}; {disks}",
        ),
    ]
    if up:
        how = "restored" if up.restored else "booted"
        lines.append(
            (
                "started",
                f"{how} in {up.ready_seconds:.1f} s, all devices after {up.settled_seconds:.1f} s; process {up.pid}",
            )
        )
        if up.kernel_arguments:
            lines.append(("arguments", f"its kernel has {' '.join(up.kernel_arguments)}, until it is started again"))
        if logs := spare_logs(one):
            logged = sum(each.log.stat().st_blocks * 512 for each in logs if each.log.is_file())
            lines.append(("log", f"all writes to its spare disks are logged, {_bytes(logged)} so far"))
        lines.append(
            ("emulated", up.accelerator_reason) if software.accelerator == "tcg" else ("KVM", up.accelerator_reason)
        )
        lines.append(
            ("peer", up.peer_namespace or "QEMU's user networking, because a namespace needs root with NET_ADMIN")
        )
        lines += [("warning", line) for line in up.warnings]
    elif ended := one.why_ended():
        lines.append(("ended", ended))
    if one.has_saved:
        lines.append(("saved", f"vmtax lab start OTHER --from {one.name}"))
    return lines


def _gib(count: int) -> str:
    """A size as the user would write it."""
    return f"{count / 2**30:.4g} GiB"


def _bytes(count: int) -> str:
    return format_value(count, "B")


def _zfs(version: str | None) -> str:
    return f"ZFS {version}" if version else "no ZFS"


def _still(one: Lab, up: Up | None) -> str:
    """Why it does not work although it is up; empty if it does. Logs in there."""
    from vmtax.lab.monitor import why_still
    from vmtax.lab.standing import lab_standing

    return (why_still(one, up) or lab_standing(one)) if up else ""


def _data(one: Lab, still: str = "") -> LabState:
    """The answer of --json; `still`: why it does not work although it is up; empty if it does."""
    from vmtax.report.answers.lab import LabState

    record, up = one.record(), one.up()
    size, software = record.size, record.software
    return LabState(
        name=one.name,
        host=_host(one),
        state="up" if up else "off",
        saved=one.has_saved,
        directory=str(one.directory),
        vcpus=size.vcpus,
        memory_bytes=size.memory_bytes,
        spares=size.spares,
        spare_bytes=size.spare_bytes,
        nvme=size.nvme,
        qemu=software.qemu,
        image=software.image,
        kernel=software.kernel,
        zfs=software.zfs,
        accelerator=software.accelerator,
        started=up.started if up else None,
        ready_seconds=up.ready_seconds if up else None,
        settled_seconds=up.settled_seconds if up else None,
        port=up.port if up else None,
        peer_namespace=up.peer_namespace if up else None,
        logs_writes=up is not None and up.logs_writes,
        warnings=[*([still] if still else []), *(up.warnings if up else [])],
    )


@lab_app.command("list")
def lab_list(json: AsJson = False) -> None:
    """List the labs on this host."""
    from vmtax.lab.home import LabError, labs
    from vmtax.lab.monitor import why_still

    whole, found = [], labs()
    for one in found:
        try:
            whole.append((one, one.record(), one.up()))
        except LabError as error:
            warn(str(error))
    if json:
        answer("labs", [_data(one) for one, _, _ in whole])
        return
    for one, record, up in whole:
        state, memory = "up" if up else "off", _gib(record.size.memory_bytes)
        saved = ", saved" if one.has_saved else ""
        still = f"; it {why}" if up and (why := why_still(one, up)) else ""
        say(f"{one.name:<20}  {state:<3}  {memory}  {_zfs(record.software.zfs)}{saved}{still}")
    if not found:
        say("there are no labs yet: vmtax lab start")


@lab_app.command("stop")
def lab_stop(name: Name = "") -> None:
    """Shut a lab down. Its disks are kept."""
    from vmtax.lab.end import stop
    from vmtax.lab.home import lab

    one = lab(name)
    stop(one)
    say(f"lab {one.name} is off")


@lab_app.command("cut")
def lab_cut(name: Name = "") -> None:
    """Cut a lab's power: data that it had not flushed are lost. `lab start` starts it again."""
    from vmtax.lab.end import cut
    from vmtax.lab.home import lab

    one = lab(name)
    cut(one)
    say(f"lab {one.name} lost its power; vmtax lab start {one.name} starts it again")


@lab_app.command("save")
def lab_save(name: Name = "") -> None:
    """Save a running lab, memory and disks. `lab start OTHER --from NAME` starts from there without booting."""
    from vmtax.experiment import progress
    from vmtax.lab.end import save
    from vmtax.lab.home import lab

    one = lab(name)
    try:
        with progress.open_screen() as emit:
            size = save(one, emit)
    except KeyboardInterrupt:  # as in run
        fail(f"interrupted; lab {one.name} continues, and an earlier saved state is kept", INTERRUPTED)
    say(f"lab {one.name} is saved, {_bytes(size)}; vmtax lab start OTHER --from {one.name}")


@lab_app.command("remove")
def lab_remove(
    name: Name = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking, as in a script.")] = False,
) -> None:
    """Remove a lab that is off, with its disks and its saved state."""
    from vmtax.lab.end import remove
    from vmtax.lab.home import lab

    one = lab(name)
    one.must_exist()
    agree(yes, f"Remove lab {one.name} and everything on its disks? [y/N]")
    remove(one)
    say(f"removed {one.name}")
