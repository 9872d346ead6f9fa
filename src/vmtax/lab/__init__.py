"""An emulated host: a guest that is a whole hypervisor host, with KVM, and lives until it is stopped."""

from vmtax.lab.home import Lab, LabError, NoSuchLab, Up, lab, labs

__all__ = ["Lab", "LabError", "NoSuchLab", "Up", "lab", "labs"]
