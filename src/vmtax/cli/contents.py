"""The commands, by what they are for: `vmtax --help` and a shell that completes their names read this table alone.

A command's parameters are in a module of `commands`, which is imported when the command is named.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple


class Declared(NamedTuple):
    """A command, or a group of them."""

    module: str  # of `commands`: its `app` has the command, or is the group
    help: str  # its own help, word for word


# In the order of `vmtax --help`.
GROUPS = {
    "Measure": {
        "doctor": Declared(
            "host",
            "List what can be measured, what is missing, and what would disturb it. Nothing is made that stays.",
        ),
        "plan": Declared("plans", "List, show and check plans, which say what is measured."),
        "run": Declared("run", "Measure a machine, print the answer and write the report."),
        "watch": Declared("run", "Watch a run that is running in another terminal."),
        "calibrate": Declared(
            "run",
            "Compare a guest with itself, to see what precision this machine reaches, in what time, and how much it"
            " varies.",
        ),
    },
    "Look": {
        "show": Declared("results", "Show the results of a run: one screen, or everything with --full."),
        "report": Declared(
            "results",
            "Write the report of a run: one HTML file that needs nothing else, or its figures for other programs.",
        ),
        "compare": Declared(
            "results",
            "Compare runs before a change with runs after it, such as an upgrade of the kernel, QEMU or firmware."
            " Three runs or more, each an argument of its own, are compared as `vmtax history` does if they are of one"
            " host, and as `vmtax fleet show` does otherwise.",
        ),
        "history": Declared(
            "results",
            "Show the costs of one host from run to run: whether they changed, when, and how far they can have"
            " changed.",
        ),
        "runs": Declared("runs", "List the stored runs, newest first, or remove some."),
        "claim": Declared("claims", "Check published figures, repeat their experiments, and see yours beside them."),
    },
    "Many": {"fleet": Declared("fleet", "Measure many hosts, and look after that.")},
    "Carry": {
        "export": Declared("results", "Write a run to a file that `import` reads on another machine."),
        "import": Declared("results", "Add a run that was measured elsewhere to the stored runs."),
    },
    "Lab": {
        "lab": Declared(
            "lab",
            "Start and use a lab: a guest that is a whole hypervisor host, with KVM, disks and networks to try things"
            " on.",
        )
    },
    "Upkeep": {
        "store": Declared("store", "Copy runs between stores."),
        "image": Declared("images", "Manage root images, which hold the programs that run on every layer."),
        "clean": Declared(
            "host",
            "List what killed runs left on this host, and remove it after a question. Results are never removed.",
        ),
    },
}
COMMANDS = dict(itertools.chain.from_iterable(group.items() for group in GROUPS.values()))
