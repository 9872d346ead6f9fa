"""The envelope of every JSON answer."""

from __future__ import annotations

import json
import math
from typing import Any

SCHEMA = "vmtax/1"


def envelope(kind: str, data: Any) -> str:
    """`data` as the JSON text that every `--json` prints. What JSON has no word for (NaN, infinity) becomes null."""
    answer = {"schema": SCHEMA, "kind": kind, "data": data}
    try:
        return json.dumps(answer, indent=2, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(answer), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return value
