"""What `vmtax doctor` says of a host."""

from __future__ import annotations

import sys

from vmtax.cli.app import NOBODY, BadUse, answer, fail
from vmtax.cli.output import printed_document
from vmtax.cli.windows import agree_to_try, print_host
from vmtax.core.errors import FAILED, INTERRUPTED
from vmtax.doctor import Check, HostReadings, diagnose, examine
from vmtax.doctor.attempt import announce, attempt
from vmtax.experiment import progress
from vmtax.machine.login_shell import WindowsThere
from vmtax.plan import rules
from vmtax.report.answers.others import DIAGNOSIS
from vmtax.report.sections.doctor import document


def doctor(host: str | None, *, try_: bool, yes: bool, json: bool) -> None:
    """Of a host. Raises SystemExit."""
    if yes and not try_:
        raise BadUse("--yes answers the question of --try: leave it out, or add --try")
    if try_ and not yes and not sys.stdin.isatty():
        raise BadUse(NOBODY)
    try:
        readings = examine(rules.host(host or "local"))
    except ValueError as error:
        raise BadUse(f"--host {error}") from error
    except WindowsThere:
        if try_:
            raise
        print_host(host or "", json=json)
    tried: tuple[Check, ...] = ()
    if try_:
        readings, tried = _tried(readings, yes=yes)
    diagnosis = diagnose(readings, tried)
    if json:
        answer("doctor", DIAGNOSIS.made(diagnosis))
    else:
        printed_document(document(diagnosis))
    raise SystemExit(FAILED if diagnosis.bad else 0)


def _tried(readings: HostReadings, *, yes: bool) -> tuple[HostReadings, tuple[Check, ...]]:
    """Announce what will be made, make it, and remove it again."""
    agree_to_try(yes, readings.host, announce(readings))
    try:
        with progress.open_screen() as emit:
            return attempt(readings, emit)
    except KeyboardInterrupt:  # as in run
        fail("interrupted; everything that was made is removed", INTERRUPTED)
