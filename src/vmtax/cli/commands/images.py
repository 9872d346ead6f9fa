"""The commands `vmtax image`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.command import App
from vmtax.cli.options import AsJson, Files, Packages

app = App(help="Manage root images, which hold the programs that run on every layer.", no_args_is_help=True)

Again = Annotated[bool, typer.Option("--again", help="Build even if there is a current one.")]


@app.command("build")
def image_build(
    again: Annotated[bool, typer.Option("--again", help="Build even if there is a current image.")] = False,
    packages: Packages = None,
    files: Files = None,
) -> None:
    """Build the root image from Debian packages. The first run does this automatically."""
    later.packs.build_image(packages, files or (), again=again)


@app.command("zfs")
def image_zfs(
    again: Annotated[
        bool, typer.Option("--again", help="Build even if there is a pack for the image's kernel.")
    ] = False,
) -> None:
    """Build the ZFS pack, which adds ZFS to the root image for guests and labs that need it."""
    later.packs.build_zfs(again=again)


@app.command("kernel")
def image_kernel(
    again: Annotated[bool, typer.Option(help="Also when there is one.")] = False,
) -> None:
    """Build the kernel pack, compiler and source of the kernel build; a run that needs it does so too."""
    later.packs.build_pack("kernel pack", again=again)


@app.command("postgresql")
def image_postgresql(again: Again = False) -> None:
    """Build the PostgreSQL pack, server and client for the writer postgresql; a run that needs it does so too."""
    later.packs.build_pack("PostgreSQL pack", again=again)


@app.command("windows")
def image_windows(again: Again = False) -> None:
    """Build the pack for Windows: fio and stockfish for Windows, from Debian's sources, for run --guest ssh://."""
    later.packs.build_pack("pack for Windows", again=again)


@app.command("list")
def image_list(json: AsJson = False) -> None:
    """List the images on this host, and the packs."""
    later.images.list_images(json=json)


@app.command("remove")
def image_remove(
    identity: Annotated[
        str, typer.Argument(metavar="IDENTITY", help="The image: its identity, or the beginning of it.")
    ],
) -> None:
    """Remove an image from this host, with a ZFS pack that no other image can use."""
    later.images.remove(identity)


@app.command("export")
def image_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, such as image.tar.zst.")],
    identity: Annotated[
        str, typer.Option(metavar="IDENTITY", help="The image to export. Default: the current one.")
    ] = "",
) -> None:
    """Write an image to one file, for a host without a network."""
    later.images.export(file, identity)


@app.command("import")
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
    later.images.import_(file, sha256, yes=yes)
