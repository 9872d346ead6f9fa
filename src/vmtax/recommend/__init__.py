"""Recommends a way to keep a guest's disk, and says what each choice gives up.

All functions are pure. Needs are met before speed counts; a choice that is only measured to be better, but not shown to
be, removes no other. The choice is written as QEMU, libvirt, Proxmox and a shell take it.
"""

from vmtax.recommend.choose import advise, members_of
from vmtax.recommend.conditions import ways
from vmtax.recommend.constraints import NEEDS, BadNeeds, durability, parse_needs
from vmtax.recommend.export import Export, Form, export
from vmtax.recommend.records import Advice, Option, named

__all__ = [
    "NEEDS",
    "Advice",
    "BadNeeds",
    "Export",
    "Form",
    "Option",
    "advise",
    "durability",
    "export",
    "members_of",
    "named",
    "parse_needs",
    "ways",
]
