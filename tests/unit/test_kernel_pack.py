"""The kernel pack: which one a run may use, and how it comes to another host."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.sample import sample_experiment
from tests.unit.test_cleanup import vmtax
from tests.unit.test_image import far_home
from vmtax.experiment import cleanup
from vmtax.image import contents, kernel, packs, place
from vmtax.image.cache import ImageError
from vmtax.image.packs import Pack
from vmtax.machine.local import LocalMachine
from vmtax.report.sections.beside import machine
from vmtax.store import Store
from vmtax.testbed.host import hosts
from vmtax.workload import build


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


def make_pack(of: str = kernel.ANY) -> Pack:
    directory = kernel.KIND.home / kernel.PACK.key()
    directory.mkdir(parents=True)
    (directory / packs.EROFS).write_text("a pack")
    pack = packs.described(directory / packs.EROFS, kernel=of, version="6.12.57-1/gcc-14", key=kernel.PACK.key())
    (directory / packs.INFO).write_text(json.dumps({k: v for k, v in asdict(pack).items() if k != "path"}))
    return pack


def test_a_pack_is_of_one_recipe_and_objects_are_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel.PACK.current() is None and not kernel.PACK.is_there()
    pack = make_pack()
    assert kernel.PACK.current() == pack and kernel.PACK.is_there() and kernel.PACK.useless() == []
    assert kernel.PACK.ensure(lambda event: None) == pack, "it is not built again"
    listed = vmtax("image", "list", home=tmp_path).stdout
    assert "kernel pack 6.12.57-1/gcc-14  6 B  current" in listed
    monkeypatch.setattr(kernel, "OBJECTS", build.OBJECTS[1:])
    assert kernel.PACK.current() is None and not kernel.PACK.is_there() and kernel.PACK.useless() == [pack]


def test_a_pack_of_another_kernel_is_none() -> None:
    pack = make_pack("6.12.1-amd64")
    assert kernel.KIND.find(pack.key, "6.12.1-amd64") == pack
    assert kernel.KIND.find(pack.key, "6.12.2-amd64") is None and kernel.KIND.find("another key", pack.kernel) is None


def test_a_damaged_pack_is_an_error_with_its_cure() -> None:
    pack = make_pack()
    pack.path.write_text("A pack")
    with pytest.raises(ImageError, match=r"pack\.erofs: damaged .*; `vmtax image kernel --again` builds it anew"):
        kernel.PACK.ensure(lambda event: None)


@pytest.mark.parametrize("whose", ["the shelf", "the pack", packs.INFO, packs.EROFS])
def test_a_pack_to_which_others_can_write_is_an_error(whose: str) -> None:
    pack = make_pack()
    directory = pack.path.parent
    path = {"the shelf": directory.parent, "the pack": directory}.get(whose, directory / whose)
    path.chmod(0o777)
    with pytest.raises(ImageError, match=rf"{path}: can be written by others.*; `vmtax image kernel --again` builds"):
        kernel.PACK.ensure(lambda event: None)


def test_only_root_builds_and_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="building the kernel pack needs root: sudo vmtax image kernel"):
        kernel.PACK.ensure(lambda event: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool: tool)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**30))
    with pytest.raises(ImageError, match=r"1\.0 GiB free; about 4\.0 GiB are needed; set XDG_CACHE_HOME"):
        kernel.KIND.refuse()


def test_cleaning_takes_packs_of_another_recipe_only(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pack()
    with Store() as store:
        assert cleanup.found(store, images=True) == []
        monkeypatch.setattr(kernel, "LAYOUT", 999)
        used = make_pack()
        assert cleanup.found(store, images=False) == []
        assert [leftover.what for leftover in cleanup.found(store, images=True)] == ["useless pack"]
        assert cleanup.remove(store, images=True) == []
    assert kernel.KIND.all() == [used]


def test_it_is_copied_to_another_host_and_checked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = make_pack()
    home = far_home(tmp_path, monkeypatch)
    told: list[object] = []
    local = LocalMachine()
    far = hosts.connect(local, "ssh://root@far", "host")
    try:
        assert place.place_pack(local, local, pack, told.append) == str(pack.path) and told == []
        there = Path(place.place_pack(far, local, pack, told.append))
        assert there.is_relative_to(home) and contents.digest(str(there)) == pack.digest and told != []
        told.clear()
        assert place.place_pack(far, local, pack, told.append) == str(there) and told == [], "it is there"
        there.write_text("A pack")
        with pytest.raises(ImageError, match="has another digest than was built; remove it there, and run again"):
            place.place_pack(far, local, pack, told.append)
    finally:
        far.close()
        local.close()


def test_a_report_names_what_was_compiled() -> None:
    run = sample_experiment(rounds=2)
    assert "kernel pack" not in str(machine(run))
    facts = {**run.facts, "host": {**run.facts["host"], "kernel_pack": {"version": "6.12.57-1/gcc-14", "digest": "5d"}}}
    assert "6.12.57-1/gcc-14" in str(machine(replace(run, facts=facts)))
