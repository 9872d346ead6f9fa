"""`vmtax doctor ssh://…`: what a Windows VM of the user's says, and its self-test."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from vmtax.cli.app import NOBODY, BadUse, agree, answer, say, say_wrapped
from vmtax.cli.files import check_output
from vmtax.cli.output import printed_document
from vmtax.core.checks import Diagnosis
from vmtax.core.errors import FAILED
from vmtax.doctor import hyper_v
from vmtax.doctor.windows import examine_windows, verdict
from vmtax.doctor.windows_try import ANNOUNCED, try_windows
from vmtax.plan import rules
from vmtax.report.answers.others import DIAGNOSIS
from vmtax.report.sections.doctor import document
from vmtax.system.output_file import replacing

TRY_FILE = Path("vmtax-windows.json")


def print_windows(name: str, host: str | None, *, try_: bool, yes: bool, json: bool) -> None:
    """The diagnosis of the Windows of that name; with `try_` also the file of its self-test, TRY_FILE.

    Raises BadUse, MachineError and SystemExit.
    """
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
    diagnosis = hyper_v.examine_hyper_v(name)
    _print(diagnosis, hyper_v.verdict(diagnosis), json=json)
    raise SystemExit(FAILED if diagnosis.bad else 0)


def _print(diagnosis: Diagnosis, words: str, *, json: bool) -> None:
    """`words`: the verdict."""
    if json:
        answer("doctor", DIAGNOSIS.made(diagnosis))
    else:
        printed_document(document(diagnosis, words))


def agree_to_try(yes: bool, name: str, lines: Sequence[str]) -> None:
    """Announce what will be made there, and return only if the answer is yes."""
    say(f"This will be made on {name}, and removed again:", file=sys.stderr)
    for line in lines:
        say(f"  {line}", file=sys.stderr)
    agree(yes)


def _tried(name: str, *, yes: bool) -> Diagnosis:
    agree_to_try(yes, name, ANNOUNCED)
    diagnosis, record = try_windows(name, lambda step: say(step, file=sys.stderr))
    with replacing(TRY_FILE) as stream:
        stream.write(json_format.dumps(record, indent=1, ensure_ascii=False).encode())
    return diagnosis
