"""Which way to keep a guest's disk: what each choice gives up, and one that is recommended with its reasons. Pure."""

from vmtax.advice.advise import advise
from vmtax.advice.constraints import NEEDS, BadNeeds, parse_needs
from vmtax.advice.export import Export, export
from vmtax.advice.give_ups import GiveUps, give_ups
from vmtax.advice.record import Advice

__all__ = ["NEEDS", "Advice", "BadNeeds", "Export", "GiveUps", "advise", "export", "give_ups", "parse_needs"]
