"""Imported by the process that tests/command.py forks."""

from tools.program import import_all

import_all()
