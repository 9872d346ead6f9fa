"""The costs of runs, kept in files of the user's cache."""

from __future__ import annotations

from vmtax.system.text_cache import TextCache

COSTS = TextCache("costs")
