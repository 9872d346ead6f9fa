"""What the commands `vmtax lab` do."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence

from vmtax.cli.app import BadUse, agree, answer, fail, say, say_wrapped, warn
from vmtax.cli.lab_options import DEFAULT_NAME, LabOptions
from vmtax.core.errors import INTERRUPTED, CannotDo
from vmtax.core.units import format_value, parse_bytes
from vmtax.design.host import ARGUMENTS
from vmtax.experiment import progress
from vmtax.lab import end
from vmtax.lab.home import Lab, LabError, Up, lab, labs
from vmtax.lab.monitor import why_still
from vmtax.lab.reach import route
from vmtax.lab.standing import lab_standing
from vmtax.lab.start import Wish
from vmtax.lab.start import start as start_lab
from vmtax.lab.write_logs import spare_logs
from vmtax.report.answers.lab import LabState
from vmtax.system.packages import install_here


def start(name: str, options: LabOptions, *, json: bool) -> None:
    """Say what it has become, or its state as JSON."""
    wish = _wish(options)
    one = lab(name)
    began = time.time()
    try:
        with progress.open_screen() as emit:
            up = start_lab(one, wish, emit, lab(options.source) if options.source else None)
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
    memory, spare = _size("--memory", asked.memory), _size("--spare-size", asked.spare_size)
    words = _arguments(asked.kernel_arguments)
    return Wish(asked.vcpus, memory, asked.spares, spare, asked.nvme, words, asked.log_writes, asked.link, asked.smt)


def _say_up(one: Lab, up: Up) -> None:
    how = "restored" if up.restored else "booted"
    say(f"lab {one.name} is up, {how} in {up.ready_seconds:.1f} s; {_in_it(one)}")
    if one.record().software.zfs is None:
        say("it has no ZFS: `vmtax image zfs` builds it; then start the lab again")


def _arguments(text: str) -> tuple[str, ...]:
    words = " ".join(text.split())
    if words and not re.fullmatch(ARGUMENTS, words):
        raise BadUse(f"--kernel-arguments {text!r}: must be kernel arguments such as mitigations=off, 8 at most")
    return tuple(words.split())


def _size(option: str, text: str | None) -> int | None:
    """The size in bytes."""
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


def log_in(name: str, command: Sequence[str]) -> None:
    """Become ssh, with this command, or none."""
    way = route(lab(name))
    sys.stdout.flush()
    command = command[1:] if command and command[0] == "--" else command
    words = ["--", *command] if command else []  # joined by spaces for the remote shell, as ssh does
    try:
        os.execvp("ssh", ["ssh", *way.options, way.destination, *words])
    except OSError as error:
        raise CannotDo(f"ssh: {error.strerror}: {install_here('ssh')}") from error


def status(name: str, *, json: bool) -> None:
    """Its size, software and disks, and whether it is up."""
    one = lab(name)
    one.record()
    if json:
        answer("lab", _data(one, _still(one, one.up())))
        return
    for what, text in _lines(one):
        say_wrapped(text, first=f"{what:>10}  ", indent=12)


def _lines(one: Lab) -> list[tuple[str, str]]:
    record, up = one.record(), one.up()
    still = _still(one, up)
    size, software = record.size, record.software
    cpus = f"{size.vcpus} CPU{'' if size.vcpus == 1 else 's'}{', two to a core' if size.smt else ''}"
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
    return (why_still(one, up) or lab_standing(one)) if up else ""


def _data(one: Lab, still: str = "") -> LabState:
    """The answer of --json; `still`: why it does not work although it is up; empty if it does."""
    record, up = one.record(), one.up()
    size, software = record.size, record.software
    return LabState(
        name=one.name,
        host=_host(one),
        state="up" if up else "off",
        saved=one.has_saved,
        directory=str(one.directory),
        vcpus=size.vcpus,
        smt=size.smt,
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


def list_labs(*, json: bool) -> None:
    """Damaged ones are warned of."""
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


def stop(name: str) -> None:
    """Say that it is off."""
    one = lab(name)
    end.stop(one)
    say(f"lab {one.name} is off")


def cut(name: str) -> None:
    """Say how it starts again."""
    one = lab(name)
    end.cut(one)
    say(f"lab {one.name} lost its power; vmtax lab start {one.name} starts it again")


def save(name: str) -> None:
    """Say how the saved state is used."""
    one = lab(name)
    try:
        with progress.open_screen() as emit:
            size = end.save(one, emit)
    except KeyboardInterrupt:  # as in run
        fail(f"interrupted; lab {one.name} continues, and an earlier saved state is kept", INTERRUPTED)
    say(f"lab {one.name} is saved, {_bytes(size)}; vmtax lab start OTHER --from {one.name}")


def remove(name: str, *, yes: bool) -> None:
    """Ask first, unless `yes`."""
    one = lab(name)
    one.must_exist()
    agree(yes, f"Remove lab {one.name} and everything on its disks? [y/N]")
    end.remove(one)
    say(f"removed {one.name}")
