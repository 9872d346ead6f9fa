"""Machines: whatever runs commands. The path is the name: `host`, `host/vm`, `host/vm/vm`."""

from vmtax.machine.base import CommandFailed, Machine, MachineLost, Outcome, Process, Undoing

__all__ = ["CommandFailed", "Machine", "MachineLost", "Outcome", "Process", "Undoing"]
