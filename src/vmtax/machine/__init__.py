"""Machines: whatever runs commands. The path is the name: `host`, `host/vm`, `host/vm/vm`."""

from vmtax.core.machines import CommandFailed, Machine, MachineError, MachineLost, Outcome, Process, Reader, Undoing

__all__ = ["CommandFailed", "Machine", "MachineError", "MachineLost", "Outcome", "Process", "Reader", "Undoing"]
