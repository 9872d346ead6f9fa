"""The names that users give, as patterns."""

from __future__ import annotations

import re

LAB = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")  # 20 characters: a network interface's name is made of it
