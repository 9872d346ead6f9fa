"""What the commands `vmtax image` build: the image, and packs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmtax.cli.app import say
from vmtax.cli.own_program import names_of
from vmtax.cli.userlands import USERLANDS, PackName
from vmtax.experiment import progress
from vmtax.image import build, cache, zfs
from vmtax.image.additions import Additions


def build_image(packages: str | None, files: Sequence[str], *, again: bool) -> None:
    """With these packages and files of the user's."""
    additions = Additions(names_of(packages), tuple(Path(name).absolute() for name in files))
    with progress.open_screen() as emit:
        image = build.build(emit, additions, again=again)
    say(f"{image.identity}  {image.directory}")


def build_zfs(*, again: bool) -> None:
    """For the kernel of the current image."""
    image = cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet, and ZFS is compiled for an image's kernel: vmtax image build")
    with progress.open_screen() as emit:
        pack = zfs.build(image, emit, again=again)
    say(f"ZFS {pack.version}  kernel {pack.kernel}  {pack.path}")


def build_pack(name: PackName, *, again: bool) -> None:
    """A userland of its own."""
    with progress.open_screen() as emit:
        pack = USERLANDS[name].build(emit, again=again)
    say(f"{name} {pack.version}  {pack.path}")
