"""Recommend a guest's disk or network card, and say what each choice gives up.

All functions are pure. Needs are met before speed and cost are considered; a choice that was only measured to be
better, without being shown to be, excludes no other. The choice is exported for QEMU, libvirt, Proxmox and a shell.
"""

from vmtax.recommend.card_export import CardExport, export_card
from vmtax.recommend.choose import CARD, DISK, KINDS, advise
from vmtax.recommend.conditions import ways
from vmtax.recommend.constraints import NEEDS, BadNeeds, parse_needs
from vmtax.recommend.disk_export import DiskExport, export_disk
from vmtax.recommend.forms import Export, Form, lines
from vmtax.recommend.kinds import ChoiceKind, Features, Figures, members_of
from vmtax.recommend.records import Advice, Option, named

__all__ = [
    "CARD",
    "DISK",
    "KINDS",
    "NEEDS",
    "Advice",
    "BadNeeds",
    "CardExport",
    "ChoiceKind",
    "DiskExport",
    "Export",
    "Features",
    "Figures",
    "Form",
    "Option",
    "advise",
    "export_card",
    "export_disk",
    "lines",
    "members_of",
    "named",
    "parse_needs",
    "ways",
]
