"""A directory on the disk under test, in which a kernel is built."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.core.records import Treatment
from vmtax.design.disk import UNMAPPED, DiskSettings
from vmtax.testbed.parts.part import Part, Request
from vmtax.workload.build import Build


class DirectoryPart(Part):
    """What makes it and fills it is in testbed/subjects/directories.py."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        workloads = request.plan.build_workloads(emulated=request.accelerator != "kvm")
        build = next((each for each in workloads if isinstance(each, Build) and each.keeps_files), None)
        if build is None:
            return {}
        reasons = {each.name: _why_not(build, each) for each in request.treatments}
        return {name: why for name, why in reasons.items() if why}


def _why_not(build: Build, treatment: Treatment) -> str:
    settings = DiskSettings.of(treatment.levels)
    if treatment.layer == "host" and not settings.is_file:
        return "build with files: disk needs a directory of the host, and disk.filesystem=none has none"
    if treatment.layer == "vm" and build.maps_files and settings.share in UNMAPPED:
        return (
            f"disk.share={settings.share}: the last step of a kernel writes to a file that is mapped into memory, and a"
            f" guest that caches nothing of a share maps none; name {UNMAPPED[settings.share]}, or target: objects"
        )
    return ""
