"""What a user's own program gets into its image: packages and files."""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vmtax.core.errors import BadInput
from vmtax.image import additions as module
from vmtax.image import build, recipe
from vmtax.image.additions import ARCHIVE, NOTHING, Additions, digests
from vmtax.plan.schema import from_data
from vmtax.testbed.host.additions import additions


def tree(directory: Path) -> Path:
    """A directory with a program, a link, and a name that no image may hold as a file of its own."""
    source = directory / "source"
    (source / "sub").mkdir(parents=True)
    (source / "run").write_text("#!/bin/sh\necho hello\n")
    (source / "run").chmod(0o755)
    (source / "sub" / "größe x").write_text("data")
    (source / "link").symlink_to("sub")
    return source


def test_the_same_contents_have_the_same_digest_whatever_their_times_and_owner(tmp_path: Path) -> None:
    first, second = (tree(tmp_path / name) for name in "ab")
    os.utime(second / "run", (1, 1))
    assert Additions(files=(first,)).digest == Additions(files=(second,)).digest


@pytest.mark.parametrize(
    "change",
    [
        lambda source: (source / "run").write_text("other"),
        lambda source: (source / "run").chmod(0o644),
        lambda source: (source / "run").rename(source / "walk"),
        lambda source: (source / "empty").mkdir(),
        lambda source: ((source / "link").unlink(), (source / "link").symlink_to("run")),
    ],
)
def test_other_contents_have_another(tmp_path: Path, change: Callable[[Path], object]) -> None:
    source = tree(tmp_path)
    before = Additions(files=(source,)).digest
    change(source)
    assert Additions(files=(source,)).digest != before


def test_the_archive_unpacks_to_the_same_files(tmp_path: Path) -> None:
    added = Additions(files=(tree(tmp_path), tmp_path / "source" / "run"))
    added.write(tmp_path / "files.tar")
    copy = tmp_path / "copy"
    copy.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "files.tar", "-C", copy], check=True)
    assert (copy / "source" / "sub" / "größe x").read_text() == "data"
    assert (copy / "source" / "link").readlink() == Path("sub")
    assert os.access(copy / "source" / "run", os.X_OK) and os.access(copy / "run", os.X_OK)
    assert Additions(files=(copy / "source", copy / "run")).digest == added.digest


def test_hard_links_are_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("data")
    (source / "b").hardlink_to(source / "a")
    Additions(files=(source,)).write(tmp_path / "files.tar")
    with tarfile.open(tmp_path / "files.tar") as archive:
        assert [(one.name, one.isreg(), one.size) for one in archive][1:] == [
            ("source/a", True, 4),
            ("source/b", True, 4),
        ]


def test_what_changes_while_it_is_copied_is_refused(tmp_path: Path) -> None:
    source = tree(tmp_path)
    added = Additions(files=(source,))
    assert added.digest
    (source / "run").write_text("other")
    with pytest.raises(BadInput, match="changed while they were copied"):
        added.write(tmp_path / "files.tar")


def test_what_cannot_be_taken_along_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "deep" / "socket"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pipe").write_text("")
    (tmp_path / "large").write_bytes(bytes(1000))
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setattr(module, "MOST_BYTES", 999)
    for files, why in {
        (tmp_path / "missing",): "missing: No such file or directory",
        (tmp_path / "pipe",): "pipe: is no file, directory or link",
        (tmp_path / "deep",): "socket: is no file, directory or link",
        (tmp_path / "a" / "pipe", tmp_path / "pipe"): "another one is called pipe too",
        (tmp_path / "loop",): "loop: Too many levels of symbolic links",
        (tmp_path / "loop" / "below",): "below: Too many levels of symbolic links",
        (tmp_path / ("x" * 300),): "File name too long",
        (Path("/"),): "has no name of its own",
        (tmp_path / "large",): "at most .* each machine keeps them in memory",
    }.items():
        with pytest.raises(BadInput, match=why) as refused:
            _ = Additions(files=files).digest
        assert "\n" not in str(refused.value)


def test_each_image_with_additions_has_a_key_of_its_own_that_names_the_recipe(tmp_path: Path) -> None:
    plain, packages, files = NOTHING, Additions(("gcc",)), Additions(files=(tree(tmp_path),))
    keys = [recipe.key(each) for each in (plain, packages, files, Additions(("gcc",), files.files))]
    assert len(set(keys)) == 4 and all(recipe.is_ours(key) for key in keys)
    assert recipe.key(Additions(("a", "b"))) == recipe.key(Additions(("b", "a")))
    assert not recipe.is_ours("0123456789abcdef")


def test_a_plan_needs_what_its_command_names() -> None:
    command = {"name": "command", "parameters": {"run": "x", "packages": ["make", "gcc"], "files": ["/etc/os-release"]}}
    plan = from_data({"name": "p", "workloads": [command]})
    assert additions(plan) == Additions(("gcc", "make"), (Path("/etc/os-release"),))
    assert additions(from_data({"name": "p", "workloads": [{"name": "chess", "parameters": {}}]})) == NOTHING


@pytest.mark.parametrize(
    "line", ["E: Unable to locate package sysbnch", "E: Package 'sysbnch' has no installation candidate"]
)
def test_a_package_that_does_not_exist_is_named_in_one_line(tmp_path: Path, line: str) -> None:
    text = build.why_failed(tmp_path, 25, ["I: installing", line, "E: apt-get failed"], 0, [])
    assert "no package sysbnch" in text and "\n" not in text


def archived(root: Path, *files: Path) -> dict[str, str]:
    """The digests of these files in an image's tree."""
    place = root / ARCHIVE
    place.parent.mkdir(parents=True, exist_ok=True)
    Additions(files=files).write(place)
    return digests(root)


def test_the_files_in_an_image_are_named_with_a_digest_of_each(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "deep").mkdir(parents=True)
    (source / "a").write_text("one")
    (source / "deep/b").write_text("two")
    before = archived(tmp_path / "image", source)
    assert set(before) == {"src/a", "src/deep/b"}
    (source / "a").write_text("ONE")
    after = archived(tmp_path / "image", source)
    assert after["src/a"] != before["src/a"] and after["src/deep/b"] == before["src/deep/b"]
    (source / "a").chmod(0o755)
    assert archived(tmp_path / "image", source)["src/a"] != after["src/a"]
    assert digests(tmp_path) == {}


def test_where_there_are_many_files_their_directories_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 3)
    source = tmp_path / "src"
    for name in ("x", "y"):
        (source / name).mkdir(parents=True)
        for number in range(3):
            (source / name / str(number)).write_text("")
    before = archived(tmp_path / "image", source)
    assert set(before) == {"src/x", "src/y"}
    (source / "y/2").write_text("changed")
    after = archived(tmp_path / "image", source)
    assert after["src/x"] == before["src/x"] and after["src/y"] != before["src/y"]
