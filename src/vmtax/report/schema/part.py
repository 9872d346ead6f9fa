"""What every record of an answer is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
