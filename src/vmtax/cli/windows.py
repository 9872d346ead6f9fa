"""`vmtax doctor ssh://…`: what a Windows VM of the user's says, and its self-test."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import NoReturn

from vmtax.cli.app import NOBODY, BadUse, agree, answer, printed, say, say_wrapped
from vmtax.core.checks import Diagnosis
from vmtax.core.errors import FAILED

TRY_FILE = Path("vmtax-windows.json")


def print_windows(name: str, host: str | None, *, try_: bool, yes: bool, json: bool) -> None:
    """The diagnosis of the Windows of that name; with `try_` also the file of its self-test, TRY_FILE.

    Raises BadUse, MachineError and SystemExit.
    """
    from vmtax.cli.files import check_output
    from vmtax.doctor.windows import examine_windows, verdict
    from vmtax.plan import rules

    if host is not None:
        raise BadUse(f"--host {host}: {name} is reached from here: leave it out")
    try:
        rules.host(name)
    except ValueError as error:
        raise BadUse(f"{name}: {error}") from error
    if try_ and not yes and not sys.stdin.isatty():
        raise BadUse(NOBODY)
    if try_:
        check_output(TRY_FILE)
    diagnosis = _tried(name, yes=yes) if try_ else examine_windows(name)
    _print(diagnosis, verdict(diagnosis), json=json)
    if try_:
        say_wrapped(f"{TRY_FILE}: every command and its output, without names: look at it, and please send it")
    raise SystemExit(FAILED if diagnosis.bad else 0)


def print_host(name: str, *, json: bool) -> NoReturn:
    """The diagnosis of the Windows of that name as a host of Hyper-V. Raises MachineError and SystemExit."""
    from vmtax.doctor.hyper_v import examine_hyper_v, verdict

    diagnosis = examine_hyper_v(name)
    _print(diagnosis, verdict(diagnosis), json=json)
    raise SystemExit(FAILED if diagnosis.bad else 0)


def _print(diagnosis: Diagnosis, words: str, *, json: bool) -> None:
    """`words`: the verdict."""
    from vmtax.report.answers.others import DIAGNOSIS
    from vmtax.report.document import Detail
    from vmtax.report.render.terminal import whole
    from vmtax.report.sections.doctor import document

    if json:
        answer("doctor", DIAGNOSIS.made(diagnosis))
    else:
        printed(whole(document(diagnosis, words), Detail.BRIEF))


def _tried(name: str, *, yes: bool) -> Diagnosis:
    from vmtax.doctor.windows_try import ANNOUNCED, try_windows
    from vmtax.system.output_file import replacing

    say(f"This will be made on {name}, and removed again:", file=sys.stderr)
    for line in ANNOUNCED:
        say(f"  {line}", file=sys.stderr)
    agree(yes)
    diagnosis, record = try_windows(name, lambda step: say(step, file=sys.stderr))
    with replacing(TRY_FILE) as stream:
        stream.write(json_format.dumps(record, indent=1, ensure_ascii=False).encode())
    return diagnosis
