"""The commands about the host itself: `vmtax doctor` and `vmtax clean`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import NOBODY, AsJson, BadUse, agree, answer, app, fail, printed, say
from vmtax.cli.existing import GUEST_HELP, print_advice
from vmtax.cli.options import Host
from vmtax.core.errors import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from vmtax.doctor import Check, HostReadings


@app.command()
def doctor(
    guest: Annotated[
        str,
        typer.Argument(
            metavar="[GUEST]",
            help=f"{GUEST_HELP} What manuals call unsafe or slow in it is listed. ssh://[user@]host: a Windows VM,"
            " and what disturbs in it.",
        ),
    ] = "",
    host: Host = None,
    try_: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Also boot guests, make networks and disks, and remove them again. In a Windows VM: a self-test, whose"
            " file vmtax-windows.json has every command and its output.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --try: begin without asking, as in a script.")] = False,
    json: AsJson = False,
) -> None:
    """List what can be measured, what is missing, and what would disturb it. Nothing is made that stays."""
    from vmtax.doctor import diagnose, examine
    from vmtax.machine.login_shell import WindowsThere
    from vmtax.plan import rules
    from vmtax.report.document import Detail
    from vmtax.report.render.terminal import whole
    from vmtax.report.sections.doctor import document

    if guest.startswith("ssh://"):
        from vmtax.cli.windows import print_windows

        print_windows(guest, host, try_=try_, yes=yes, json=json)
    if guest:
        if try_ or yes:
            raise BadUse("--try is about a host: leave it out, or leave out the guest")
        print_advice(guest, host, json=json)
        return
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
        from vmtax.cli.windows import print_host

        print_host(host or "", json=json)
    tried: tuple[Check, ...] = ()
    if try_:
        readings, tried = _tried(readings, yes=yes)
    diagnosis = diagnose(readings, tried)
    if json:
        from vmtax.report.answers.others import DIAGNOSIS

        answer("doctor", DIAGNOSIS.made(diagnosis))
    else:
        printed(whole(document(diagnosis), Detail.BRIEF))
    raise SystemExit(FAILED if diagnosis.bad else 0)


def _tried(readings: HostReadings, *, yes: bool) -> tuple[HostReadings, tuple[Check, ...]]:
    """Announce what will be made, make it, and remove it again."""
    from vmtax.doctor.attempt import announce, attempt
    from vmtax.experiment import progress

    say(f"This will be made on {readings.host}, and removed again:", file=sys.stderr)
    for line in announce(readings):
        say(f"  {line}", file=sys.stderr)
    agree(yes)
    try:
        with progress.open_screen() as emit:
            return attempt(readings, emit)
    except KeyboardInterrupt:  # as in run
        fail("interrupted; everything that was made is removed", INTERRUPTED)


@app.command()
def clean(
    images: Annotated[
        bool,
        typer.Option("--images", help="Also remove images and packs that this version does not use, and damaged ones."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking, as in a script.")] = False,
    json: AsJson = False,
) -> None:
    """List what killed runs left on this host, and remove it after a question. Results are never removed."""
    from vmtax.experiment import cleanup as cleaning
    from vmtax.store import Store

    listing = sys.stderr if json else None
    with Store() as store:
        leftovers = cleaning.found(store, images=images)
        for leftover in leftovers:
            say(f"{leftover.what:>19}  {leftover.text}", file=listing)
        if not leftovers:
            say("there is nothing to remove", file=listing)
        else:
            agree(yes, "Remove all of this? [y/N]")
        left = cleaning.remove(store, images=images) if leftovers else []
    if left:
        fail("\n".join(f"could not be removed: {line}" for line in left), FAILED)
    if json:
        from vmtax.report.answers.others import Removed

        answer("removed", [Removed.of(leftover) for leftover in leftovers])
