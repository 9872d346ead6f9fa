"""An image in a file: exported, imported, refused; and the commands that list and remove images."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.unit.test_cleanup import vmtax
from tests.unit.test_image import make_image
from vmtax.core.errors import BadInput
from vmtax.image import cache, place
from vmtax.image.cache import ImageError

pytestmark = pytest.mark.usefixtures("own_cache")


def accept(digest: str) -> None:
    """Without asking."""


def test_export_and_import_carry_it_to_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make_image()
    file = tmp_path / "image.tar.zst"
    place.export(image, file)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache.images() == []
    digests: list[str] = []
    before = os.umask(0o077)
    try:
        carried = place.import_(file, digests.append)
    finally:
        os.umask(before)
    assert digests == [carried.digest] == [image.digest] and carried.directory != image.directory
    cache.verify(carried)
    assert (carried.tree / "link").readlink() == Path("usr/program")
    assert (carried.tree / "usr/program").stat().st_mode & 0o7777 == 0o755
    assert place.import_(file, accept) == carried, "a second import finds it there"


def test_who_refuses_the_digest_gets_nothing(tmp_path: Path) -> None:
    image = make_image()
    file = tmp_path / "image.tar.zst"
    place.export(image, file)
    cache.remove(image)

    def refuse(digest: str) -> None:
        raise BadInput(digest)

    with pytest.raises(BadInput, match=image.digest):
        place.import_(file, refuse)
    assert cache.images() == [] and cache.shelf().entries() == []


def test_the_command_wants_the_digest_or_an_answer_to_its_question(tmp_path: Path) -> None:
    image = make_image()
    file = tmp_path / "image.tar.zst"
    told = vmtax("image", "export", str(file), home=tmp_path).stdout
    assert f"vmtax image import --sha256 {image.digest} image.tar.zst" in told
    cache.remove(image)
    unsaid = vmtax("image", "import", str(file), home=tmp_path)
    assert unsaid.returncode == 2 and "add --sha256 DIGEST" in unsaid.stderr
    assert "its programs will run here" in unsaid.stderr
    assert f"`vmtax image export` must have printed {image.digest}" in unsaid.stderr
    other = vmtax("image", "import", "--sha256", "0" * 64, str(file), home=tmp_path)
    assert other.returncode == 2 and f"has the digest {image.digest}, not {'0' * 64}" in other.stderr
    for wrong in ("abc", "G" * 64):
        bad = vmtax("image", "import", "--sha256", wrong, str(file), home=tmp_path)
        assert bad.returncode == 2 and "must be 64 digits" in bad.stderr
    assert cache.images() == []
    for options in (("--sha256", image.digest), ("--yes",)):
        done = vmtax("image", "import", *options, str(file), home=tmp_path)
        assert done.returncode == 0 and done.stdout.startswith(image.identity)
        cache.remove(cache.find(image.digest))


def test_what_is_not_there_is_bad_input(tmp_path: Path) -> None:
    make_image()
    for command in (
        ("remove", "nosuch"),
        ("export", "--identity", "nosuch", "x.tar.zst"),
        ("export", "/nosuch/x.tar.zst"),
        ("import", "nosuch"),
    ):
        done = vmtax("image", *command, home=tmp_path)
        assert done.returncode == 2 and "nosuch" in done.stderr and done.stderr.count("\n") == 1
    assert "vmtax: a;id: No such file or directory" in vmtax("image", "import", "a;id", home=tmp_path).stderr


def test_what_is_no_whole_image_is_listed_and_can_be_removed(tmp_path: Path) -> None:
    image = make_image()
    half = cache.images_directory() / "138b23d57570"
    half.mkdir()
    (half / "image.json").write_text("\x1b]0;title\a")
    listed = vmtax("image", "list", home=tmp_path).stdout.splitlines()
    assert listed[0].startswith(image.identity) and listed[1].startswith("138b23d57570  half made, damaged, or of")
    told = json.loads(vmtax("image", "list", "--json", home=tmp_path).stdout)["data"]
    assert [(line["what"], line["name"]) for line in told] == [("image", image.identity), ("not whole", half.name)]
    assert told[0]["kernel"] == image.kernel and told[0]["usable"]
    assert vmtax("image", "remove", "138b23d57570", home=tmp_path).stdout == "removed 138b23d57570\n"
    assert not half.exists() and image.directory.is_dir()


def test_an_image_is_exported_to_a_file_only(tmp_path: Path) -> None:
    image = make_image()
    with pytest.raises(BadInput, match="is no regular file; name a file"):
        place.export(image, tmp_path)
    with pytest.raises(BadInput, match="its directory does not exist; name a file"):
        place.export(image, tmp_path / "no" / "image.tar.zst")


def test_a_link_that_is_made_to_a_file_meanwhile_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tar says then that it changed. What it says besides, and a file that did change, are refused."""
    image, file, tar = make_image(), tmp_path / "image.tar.zst", tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tar.parent}:{os.environ['PATH']}")

    def tar_that(says: str, does: str = "true") -> None:
        tar.write_text(
            f'#!/bin/sh\n{shutil.which("tar", path=os.defpath)} "$@"; {does}; echo "tar: {says}" >&2; exit 1\n'
        )
        tar.chmod(0o755)

    tar_that("root.erofs: file changed as we read it")
    place.export(image, file)
    with pytest.raises(ImageError, match="No space left"):
        tar_that("root.erofs: No space left on device")
        place.export(image, file)
    with pytest.raises(ImageError):
        tar_that("root.erofs: file changed as we read it", f"echo more >> {image.root}")
        place.export(image, file)


def test_garbage_is_not_imported(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("no archive")
    with pytest.raises(BadInput, match=r"garbage: is not a file that .*unsupported format"):
        place.import_(garbage, accept)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(BadInput, match=f"{path}: is no regular file; name a file"):
            place.import_(path, accept)
    assert cache.images() == [] and cache.shelf().entries() == []
