"""The commands about the host itself: `vmtax doctor` and `vmtax clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.app import BadUse
from vmtax.cli.command import App
from vmtax.cli.options import GUEST_HELP, AsJson, Host

app = App()


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
    if guest.startswith("ssh://"):
        later.windows.print_windows(guest, host, try_=try_, yes=yes, json=json)
    elif guest and (try_ or yes):
        raise BadUse("--try is about a host: leave it out, or leave out the guest")
    elif guest:
        later.existing.print_advice(guest, host, json=json)
    else:
        later.host.doctor(host, try_=try_, yes=yes, json=json)


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
    later.clean.clean(images=images, yes=yes, json=json)
