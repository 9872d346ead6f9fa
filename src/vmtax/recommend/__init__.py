"""Which way to keep a guest's disk: what each choice gives up, and one that is recommended with its reasons. Pure."""

from vmtax.recommend.choose import advise, members_of
from vmtax.recommend.conditions import ways
from vmtax.recommend.constraints import NEEDS, BadNeeds, Known, durability, found_features, parse_needs
from vmtax.recommend.export import Export, Form, export
from vmtax.recommend.give_ups import GiveUps, give_ups
from vmtax.recommend.records import Advice, Option, named

__all__ = [
    "NEEDS",
    "Advice",
    "BadNeeds",
    "Export",
    "Form",
    "GiveUps",
    "Known",
    "Option",
    "advise",
    "durability",
    "export",
    "found_features",
    "give_ups",
    "members_of",
    "named",
    "parse_needs",
    "ways",
]
