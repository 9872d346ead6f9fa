"""Machines that run commands: this host, a host over SSH, a guest. Each is named by its path: `host`, `host/vm`.

Everything that is set up on a machine is registered for undo beforehand, and its guard undoes it on any exit.
"""

from vmtax.core.machines import (
    CommandFailed,
    CommandStuck,
    Machine,
    MachineError,
    MachineLost,
    Outcome,
    Process,
    Reader,
    Undoing,
)

__all__ = [
    "CommandFailed",
    "CommandStuck",
    "Machine",
    "MachineError",
    "MachineLost",
    "Outcome",
    "Process",
    "Reader",
    "Undoing",
]
