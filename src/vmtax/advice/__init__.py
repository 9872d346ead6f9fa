"""Which way to keep a guest's disk: what each choice gives up, and one that is recommended with its reasons. Pure."""

from vmtax.advice.advise import advise, members_of
from vmtax.advice.conditions import ways
from vmtax.advice.constraints import NEEDS, BadNeeds, Known, durability, found_features, parse_needs
from vmtax.advice.export import Export, Form, export
from vmtax.advice.record import Advice, Option, named

__all__ = [
    "NEEDS",
    "Advice",
    "BadNeeds",
    "Export",
    "Form",
    "Known",
    "Option",
    "advise",
    "durability",
    "export",
    "found_features",
    "members_of",
    "named",
    "parse_needs",
    "ways",
]
