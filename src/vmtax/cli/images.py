"""`vmtax image`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli.app import app
from vmtax.cli.command import App

image_app = App(help="Root images: the one userland of all layers.", no_args_is_help=True)
app.add_typer(image_app, name="image")


@image_app.command("build")
def image_build(
    again: Annotated[bool, typer.Option(help="Also when there is one of the present recipe.")] = False,
) -> None:
    """Build the root image."""
    from vmtax import screen
    from vmtax.image import build

    with screen.open_screen() as emit:
        image = build.build(emit, again=again)
    print(f"{image.identity}  {image.directory}")


@image_app.command("zfs")
def image_zfs(
    again: Annotated[bool, typer.Option(help="Also when there is one for the image's kernel.")] = False,
) -> None:
    """Build the ZFS pack, which guests that need ZFS lay over the root image."""
    from vmtax import screen
    from vmtax.image import cache, zfs

    image = cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet, whose kernel it would be for: vmtax image build")
    with screen.open_screen() as emit:
        pack = zfs.build(image, emit, again=again)
    print(f"ZFS {pack.version}  kernel {pack.kernel}  {pack.path}")


@image_app.command("list")
def image_list() -> None:
    """List the images of this host, and the ZFS packs for them."""
    from vmtax.image import cache, recipe, zfs
    from vmtax.units import format_value

    for image in cache.images():
        mark = "current" if image.recipe == recipe.key() else "of another recipe"
        size = format_value(image.bytes, "B")
        print(f"{image.identity}  kernel {image.kernel}  {image.packages} packages  {size}  {mark}")
    useless = zfs.useless(cache.images())
    for pack in zfs.packs():
        mark = "for no image here" if pack in useless else "for its images"
        print(f"ZFS {pack.version}  kernel {pack.kernel}  {format_value(pack.bytes, 'B')}  {mark}")


@image_app.command("remove")
def image_remove(
    identity: Annotated[str, typer.Argument(metavar="IDENTITY", help="Or its start.")],
) -> None:
    """Remove an image from this host, and a ZFS pack that no other image can use."""
    from vmtax.image import cache, zfs
    from vmtax.resume import image_of
    from vmtax.store import Store

    image = cache.find(identity)
    with Store() as store:
        for run in (entry.id for entry in store.experiments() if entry.state == "running"):
            if image_of(store.load(run)) == image.identity:
                raise cache.ImageError(f"{image.identity} is used by run {run}: `vmtax watch {run}` shows how long yet")
    cache.remove(image)
    print(f"removed {image.identity}")
    for pack in zfs.useless(cache.images()):
        zfs.remove(pack)
        print(f"removed ZFS {pack.version} for kernel {pack.kernel}")


@image_app.command("export")
def image_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Such as image.tar.zst.")],
    identity: Annotated[str, typer.Option(metavar="IDENTITY", help="Which; the current one.")] = "",
) -> None:
    """Write an image to one file, for a host without a network."""
    from vmtax.image import cache, place

    image = cache.find(identity) if identity else cache.current()
    if image is None:
        raise cache.ImageError("there is no image yet: vmtax image build")
    place.export(image, file)
    print(f"{image.identity}  {file}")


@image_app.command("import")
def image_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `vmtax image export` wrote.")],
) -> None:
    """Install an image that `image export` wrote."""
    from vmtax.image import place

    image = place.import_(file)
    print(f"{image.identity}  {image.directory}")
