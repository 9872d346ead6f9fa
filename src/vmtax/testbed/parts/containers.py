"""Containers: what a host must have to start them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.container import ContainerError, find_runtime, why_not
from vmtax.testbed.parts.part import Part, Request


class Containers(Part):
    """The runtime that starts containers, and the filter of system calls that they have."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        contained = _contained(request)
        why = why_not(request.host) if contained else None
        return dict.fromkeys(contained, why) if why else {}

    def take(self, request: Request) -> Mapping[str, str]:
        """Nothing that lasts: a container is started, and is gone again."""
        contained = _contained(request)
        try:
            if contained:
                find_runtime(request.host)
        except ContainerError as error:
            return dict.fromkeys(contained, str(error).removeprefix(f"{request.host.path}: "))
        return {}

    def notes(self, request: Request) -> Sequence[str]:
        if not _contained(request):
            return ()
        runtime = find_runtime(request.host)
        passed_over = f", because {runtime.passed_over}" if runtime.passed_over else ""
        return (f"Containers are started by {runtime.name} {runtime.version}{passed_over}.",)


def _contained(request: Request) -> list[str]:
    return [treatment.name for treatment in request.treatments if treatment.layer == "container"]
