"""Containers as places where workloads run: an OCI bundle that we write, run by crun or runc, and proven from inside.

Docker, podman and Kubernetes execute the same runtimes. We do not go through podman, whose helper processes would be in
the measurement.
"""

from vmtax.container.bundle import Container, ContainerError
from vmtax.container.proof import why_not_confined
from vmtax.container.run import Runtime, end_commands, find_runtime, opened, why_not

__all__ = [
    "Container",
    "ContainerError",
    "Runtime",
    "end_commands",
    "find_runtime",
    "opened",
    "why_not",
    "why_not_confined",
]
