"""A directory on the disk under test, for a workload whose files lie there: a new one for each boot."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.hypervisor.confine import enter_tree
from vmtax.storage import Backing
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.testbed.subjects.sites import PACK_MOUNT
from vmtax.workload import Site
from vmtax.workload.build import Build

_numbers = itertools.count(1)
MOUNT = "/run/vmtax-data"  # in the guest
# Not left to the kernel for later, when something is measured; and the disk keeps the blocks that were written in full.
EXT4 = ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
# In a guest, where files of a shared directory belong to the user of the host who serves them
OF_ANY_USER = ("CAP_DAC_OVERRIDE", "CAP_FOWNER")


def on_host(on: Provisioned, site: Site, disk: Backing | None, stack: contextlib.ExitStack) -> Site:
    """The site with a directory beside the disk's file; `stack` removes it."""
    if disk is None or (build := _wanting(on)) is None:
        return site
    directory = disk.path.with_name(f"data{next(_numbers)}")
    stack.callback(on.host.remove_later(directory).undo)
    on.host.run("mkdir", "-m", "700", str(directory))
    return _laid_out(build, replace(site, directory=str(directory)))


def in_guest(on: Provisioned, site: Site, *, is_shared: bool) -> Site:
    """The site with a directory in the one that is shared with the guest, or in an ext4 on its disk."""
    build, disk, machine = _wanting(on), site.disk, site.machine
    if build is None or disk is None:
        return site
    directory = PurePosixPath(disk).with_name("data") if is_shared else PurePosixPath(MOUNT)
    machine.run("mkdir", str(directory))
    if is_shared:
        site = replace(site, kernel_pack=enter_tree(PACK_MOUNT, root=True, capabilities=OF_ANY_USER))
    else:
        machine.run(*EXT4, disk)
        machine.run("mount", "-t", "ext4", disk, str(directory))
    return _laid_out(build, replace(site, directory=str(directory)))


def _wanting(on: Provisioned) -> Build | None:
    return next((each for each in on.workloads if isinstance(each, Build) and each.keeps_files), None)


def _laid_out(build: Build, site: Site) -> Site:
    assert site.kernel_pack is not None and site.directory is not None
    site.machine.run(*site.kernel_pack, *build.lay_out(site.directory))
    return site
