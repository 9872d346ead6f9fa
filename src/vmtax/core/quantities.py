"""What a plan writes as a number with a unit, and between which bounds; each bound stands once, as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from vmtax.core.units import show

FROM_YAML = {"from": "yaml"}  # validation context: a person wrote it, so a bare number may lack its unit


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotates a field that is read from text such as "1GiB", and held to its bounds."""

    parse: Callable[[str], float]  # text -> base units; ValueError
    low: str
    high: str
    example: str
    bare: bool = False  # whether a person may write a number of base units
    none: bool = False  # whether the word `none` stands for no such number
    as_text: bool = False  # the field keeps what was written

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
        """A number is in base units already."""
        unitless = self.as_text or (info.context == FROM_YAML and not self.bare)
        if not isinstance(value, int | float) or isinstance(value, bool) or unitless:
            example = f"{self.example}{' (or none)' if self.none else ''}"
            raise ValueError(f"must be a number and a unit, such as {example}, not {show(value)}")
        return value
