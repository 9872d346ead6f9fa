"""Which way to keep a guest's disk: what each choice gives up, and one that is recommended with its reasons. Pure."""

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
