"""`python -m vmtax.cli.look PLAN OPTION...`: what `vmtax fleet run` asks of each host, in a process of its own, so that
no host can hold up or end the others. Prints JSON: the machine-id, and why the plan cannot be measured there, "" if it
can.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from vmtax.cli.app import document, warn
from vmtax.cli.asked import Measured
from vmtax.cli.command import App
from vmtax.cli.ending import explained
from vmtax.system import streams
from vmtax.testbed.session.exclusive import ids_of
from vmtax.testbed.session.session import connected

look_app = App(add_completion=False)


@look_app.command("look")
def look(asked: Measured, plan: Annotated[str, typer.Argument()] = "") -> None:
    """`plan`: "" to see only who is there."""
    from vmtax.cli.checking import checked

    with connected(asked.changes.host or "local", warn) as hosts:
        machine = " ".join(ids_of(hosts))
    refused = checked(plan, asked).refused if plan else None
    document(json.dumps({"machine": machine, "refused": refused or ""}))


def main() -> None:
    streams.ready()
    try:
        look_app(prog_name="look", standalone_mode=False)
    except Exception as error:
        text, code = explained(error)
        warn(text)
        sys.exit(code)


if __name__ == "__main__":
    main()
