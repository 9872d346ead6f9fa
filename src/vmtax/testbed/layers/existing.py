"""Layer existing: the same programs in a VM of the user's, as it runs. It is not booted, and none of its settings is
changed: the run has no `Guest` of it, through which that could be done.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.attach import DomainError
from vmtax.core.layers import EXISTING_PATH
from vmtax.core.records import Treatment
from vmtax.hypervisor import BootFailed, Guest
from vmtax.storage import Backing
from vmtax.testbed.layers import host
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.session.ways import as_libvirt
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.testbed.subjects.windows import is_windows, windows_site


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """No guests of ours, and one subject: the VM, whose userland is entered as a host's is.

    Raises BootFailed and MachineError, and MachineLost for a Windows that was restarted since it was entered.
    """
    if on.watching is not None:
        site = replace(host.site(on, None), layer=treatment.layer)
        return (), [RunningSubject(site, offers=(on.watching.watched,), path=EXISTING_PATH)]
    vm = on.existing
    assert vm is not None, "a treatment of this layer has a VM"
    disk = vm.disks.of(treatment) if vm.disks else None
    plug = vm.entered.plug if vm.entered else None
    if plug is not None and on.disks is not None:  # the same file as on the host
        file = on.disks.of(treatment)
        try:
            device = stack.enter_context(plug(str(file.path), as_libvirt(treatment.levels)))
        except DomainError as error:  # this configuration is impossible, others may not be
            raise BootFailed(str(error)) from error
        disk = Backing(PurePosixPath(device), is_device=True, size=file.size)
    site = windows_site(vm) if is_windows(vm) else host.site(vm, disk)
    site = replace(site, layer=treatment.layer, lead=on.lead)
    return (), [RunningSubject(site, path=EXISTING_PATH)]
