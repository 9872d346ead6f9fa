"""Patterns for names that users give."""

from __future__ import annotations

import re

LAB = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")  # 20 characters, because names of network interfaces are derived from it
