"""Numbers with units in plans, and their bounds; each bound is written once, as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from vmtax.core.units import show

FROM_YAML = {"from": "yaml"}  # validation context: written by a person, so a number may lack its unit


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotates a field that is parsed from text such as "1GiB", and checked against bounds."""

    parse: Callable[[str], float]  # text -> base units; raises ValueError
    low: str
    high: str
    example: str
    bare: bool = False  # whether a person may write a number in base units
    none: bool = False  # whether the word `none` is allowed for no number
    as_text: bool = False  # the field keeps the text

    @property
    def bounds(self) -> str:
        """For people: "256MiB to 1024TiB"."""
        return f"{self.low} to {self.high}{', or none' if self.none else ''}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(self._read, handler(source))

    def _read(self, value: object, info: ValidationInfo) -> object:
        if self.none and value in (None, "none"):
            return None
        number = self.parse(value) if isinstance(value, str) else self._number(value, info)
        if not self.parse(self.low) <= number <= self.parse(self.high):
            raise ValueError(f"must be {'none, or ' if self.none else ''}from {self.low} to {self.high}")
        return value if self.as_text else number

    def _number(self, value: object, info: ValidationInfo) -> float:
        """A number is already in base units."""
        unitless = self.as_text or (info.context == FROM_YAML and not self.bare)
        if not isinstance(value, int | float) or isinstance(value, bool) or unitless:
            example = f"{self.example}{' (or none)' if self.none else ''}"
            raise ValueError(f"must be a number and a unit, such as {example}, not {show(value)}")
        return value
