"""Machines that run commands: this host, a host over SSH, a guest. The path is the name: `host`, `host/vm`.

Whatever is set up on a machine is registered for undo before it is made, and its guard undoes it on any exit.
"""

from vmtax.core.machines import CommandFailed, Machine, MachineError, MachineLost, Outcome, Process, Reader, Undoing

__all__ = ["CommandFailed", "Machine", "MachineError", "MachineLost", "Outcome", "Process", "Reader", "Undoing"]
