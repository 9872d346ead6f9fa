"""The commands `vmtax image`."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vmtax.cli.app import AsJson, BadUse, agree, answer, app, say, warn
from vmtax.cli.command import App
from vmtax.cli.files import refuse_stdout
from vmtax.cli.options import Files, Packages

if TYPE_CHECKING:
    from vmtax.image.packs import Userland
    from vmtax.report.answers.others import StoredImage

image_app = App(help="Manage root images, which hold the programs that run on every layer.", no_args_is_help=True)
app.add_typer(image_app, name="image")


@image_app.command("build")
def image_build(
    again: Annotated[bool, typer.Option("--again", help="Build even if there is a current image.")] = False,
    packages: Packages = None,
    files: Files = None,
) -> None:
    """Build the root image from Debian packages. The first run does this automatically."""
    from vmtax.cli.own_program import names_of
    from vmtax.experiment import progress
    from vmtax.image import build
    from vmtax.image.additions import Additions

    additions = Additions(names_of(packages), tuple(Path(name).absolute() for name in files or ()))
    with progress.open_screen() as emit:
        image = build.build(emit, additions, again=again)
    say(f"{image.identity}  {image.directory}")


@image_app.command("zfs")
def image_zfs(
    again: Annotated[
        bool, typer.Option("--again", help="Build even if there is a pack for the image's kernel.")
    ] = False,
) -> None:
    """Build the ZFS pack, which adds ZFS to the root image for guests and labs that need it."""
    from vmtax.experiment import progress
    from vmtax.image import cache, zfs

    image = cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet, and ZFS is compiled for an image's kernel: vmtax image build")
    with progress.open_screen() as emit:
        pack = zfs.build(image, emit, again=again)
    say(f"ZFS {pack.version}  kernel {pack.kernel}  {pack.path}")


@image_app.command("kernel")
def image_kernel(
    again: Annotated[bool, typer.Option(help="Also when there is one.")] = False,
) -> None:
    """Build the kernel pack, compiler and source of the kernel build; a run that needs it does so too."""
    from vmtax.experiment import progress
    from vmtax.image import kernel

    with progress.open_screen() as emit:
        pack = kernel.PACK.build(emit, again=again)
    say(f"kernel pack {pack.version}  {pack.path}")


@image_app.command("postgresql")
def image_postgresql(
    again: Annotated[bool, typer.Option("--again", help="Build even if there is a current one.")] = False,
) -> None:
    """Build the PostgreSQL pack, server and client for the writer postgresql; a run that needs it does so too."""
    from vmtax.experiment import progress
    from vmtax.image import postgresql

    with progress.open_screen() as emit:
        pack = postgresql.PACK.build(emit, again=again)
    say(f"PostgreSQL pack {pack.version}  {pack.path}")


@image_app.command("windows")
def image_windows(
    again: Annotated[bool, typer.Option("--again", help="Build even if there is a current one.")] = False,
) -> None:
    """Build the pack for Windows: fio and stockfish for Windows, from Debian's sources, for run --guest ssh://."""
    from vmtax.experiment import progress
    from vmtax.image import windows

    with progress.open_screen() as emit:
        pack = windows.PACK.build(emit, again=again)
    say(f"pack for Windows {pack.version}  {pack.path}")


@image_app.command("list")
def image_list(json: AsJson = False) -> None:
    """List the images on this host, and the packs."""
    from vmtax.core.units import format_value
    from vmtax.image import cache, zfs

    if json:
        answer("images", list(_stored()))
        return
    for image in cache.images():
        mark = _mark(image.recipe)
        size = format_value(image.bytes, "B")
        say(f"{image.identity}  kernel {image.kernel}  {image.packages} packages  {size}  {mark}")
    packs = zfs.KIND.all()
    useless = zfs.useless(cache.images())
    for pack in packs:
        mark = "for no image here" if pack in useless else "for an image here"
        say(f"ZFS {pack.version}  kernel {pack.kernel}  {format_value(pack.bytes, 'B')}  {mark}")
    for what, userland in _userlands().items():
        for pack in userland.kind.all():
            mark = "of another version of vmtax" if pack in userland.useless() else "current"
            say(f"{what} {pack.version}  {format_value(pack.bytes, 'B')}  {mark}")
    for path in _left():
        say(f"{path.name}  half made, damaged, or of another version of vmtax: `vmtax image remove {path.name}`")


def _mark(key: str) -> str:
    """What an image with that key is for."""
    from vmtax.image import recipe

    if key == recipe.key():
        return "current"
    return "for a command" if recipe.is_ours(key) else "of another version of vmtax"


def _userlands() -> dict[Literal["kernel pack", "PostgreSQL pack", "pack for Windows"], Userland]:
    """Userlands by the names of their packs."""
    from vmtax.image import kernel, postgresql, windows

    return {"kernel pack": kernel.PACK, "PostgreSQL pack": postgresql.PACK, "pack for Windows": windows.PACK}


def _left() -> list[Path]:
    """Incomplete images and packs."""
    from vmtax.experiment.cleanup import SHELVES

    return [path for shelf in SHELVES.values() for path in shelf().left()]


def _stored() -> Iterator[StoredImage]:
    """The answer of `image list`, as data."""
    from vmtax.image import cache, recipe, zfs
    from vmtax.report.answers.others import StoredImage

    for image in cache.images():
        place, usable = str(image.directory), recipe.is_ours(image.recipe)
        yield StoredImage("image", image.identity, place, usable, image.kernel, image.bytes, image.packages)
    for_none = zfs.useless(cache.images())
    for pack in zfs.KIND.all():
        yield StoredImage("ZFS pack", pack.version, str(pack.path), pack not in for_none, pack.kernel, pack.bytes, None)
    for what, userland in _userlands().items():
        useless = userland.useless()
        for pack in userland.kind.all():
            yield StoredImage(what, pack.version, str(pack.path), pack not in useless, None, pack.bytes, None)
    for path in _left():
        yield StoredImage("not whole", path.name, str(path), False, None, None, None)


@image_app.command("remove")
def image_remove(
    identity: Annotated[
        str, typer.Argument(metavar="IDENTITY", help="The image: its identity, or the beginning of it.")
    ],
) -> None:
    """Remove an image from this host, with a ZFS pack that no other image can use."""
    from vmtax.experiment.cleanup import SHELVES
    from vmtax.image import cache, zfs

    for shelf in (shelf() for shelf in SHELVES.values()):
        for path in shelf.half_made():
            if path.name == identity:
                _refuse_used(identity)
                shelf.remove(path)
                say(f"removed {identity}")
                return
    image = cache.find(identity)
    _refuse_used(image.identity)
    cache.remove(image)
    say(f"removed {image.identity}")
    for pack in zfs.useless(cache.images()):
        zfs.KIND.remove(pack)
        say(f"removed ZFS {pack.version} for kernel {pack.kernel}")


def _refuse_used(identity: str) -> None:
    from vmtax.experiment.resume import image_of
    from vmtax.image.cache import ImageError
    from vmtax.store import Store

    with Store(reads=True) as store:
        for run in store.load_all(lambda entry: entry.state == "running"):
            if image_of(run) == identity:
                raise ImageError(f"{identity} is used by run {run.id}: `vmtax watch {run.id}` shows the time left")


@image_app.command("export")
def image_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, such as image.tar.zst.")],
    identity: Annotated[
        str, typer.Option(metavar="IDENTITY", help="The image to export. Default: the current one.")
    ] = "",
) -> None:
    """Write an image to one file, for a host without a network."""
    from vmtax.image import cache, place

    refuse_stdout(file)
    image = cache.find(identity) if identity else cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet: vmtax image build")
    place.export(image, file)
    say(f"{image.identity}  {file}")
    say(f"to import it: vmtax image import --sha256 {image.digest} {shlex.quote(file.name)}")


@image_app.command("import")
def image_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `vmtax image export` wrote.")],
    sha256: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST", help="The digest that `vmtax image export` printed; a file with another one is refused."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Trust the file without asking, as in a script.")] = False,
) -> None:
    """Import an image that `image export` wrote. Its programs will run here, as root if vmtax runs as root."""
    from vmtax.image import place

    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise BadUse(f"--sha256 {sha256}: must be 64 digits of 0-9 and a-f, as `vmtax image export` printed them")

    def accept(digest: str) -> None:
        if sha256 is None:
            rights = "as root" if os.geteuid() == 0 else "with your rights"
            warn(f"{file}: its programs will run here {rights}; `vmtax image export` must have printed {digest}")
            if not yes and not sys.stdin.isatty():
                raise BadUse(
                    "there is no terminal to compare the digest on: add --sha256 DIGEST, or --yes to trust the file"
                )
            agree(yes, "Is that the digest? [y/N]")
        elif digest != sha256:
            raise BadUse(f"{file}: has the digest {digest}, not {sha256}: it is another image, or it was changed")

    image = place.import_(file, accept)
    say(f"{image.identity}  {image.directory}")
