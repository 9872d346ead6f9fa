"""Where files lie: directories for this user alone, and one clear line where there are none."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from vmtax.system import search_path
from vmtax.system.paths import NoPlace, cache_home, data_home, make_private, state_home


def test_all_that_is_made_is_private_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for umask in (0, 0o022, 0o777):
        before = os.umask(umask)
        try:
            make_private(cache_home() / f"images{umask}" / "inner")
        finally:
            os.umask(before)
    made = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    assert len(made) == 9 and {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


def test_what_is_ours_is_closed_to_others_and_what_is_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ours = tmp_path / "vmtax"
    ours.mkdir()
    ours.chmod(0o777)
    assert state_home() == ours and stat.S_IMODE(ours.stat().st_mode) == 0o755
    os.chown(ours, 65534, 65534)
    with pytest.raises(
        NoPlace, match=r"vmtax belongs to user 65534, and you are user 0; set HOME or XDG_STATE_HOME to"
    ):
        state_home()
    tmp_path.chmod(0o777)
    with pytest.raises(
        NoPlace, match=r": what is kept there is not safe: others than root can write to /.*; set HOME or"
    ):
        state_home()


def test_a_link_is_followed_to_what_is_ours_alone_and_never_changed_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("cache", "large", "open", "above/inner"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "open").chmod(0o1777)
    os.chown(tmp_path / "above", 65534, 65534)
    link = tmp_path / "cache/vmtax"
    link.symlink_to(tmp_path / "large")
    assert cache_home() == link
    for target, words in (
        ("open", "others than root can write to .*/open"),
        ("above/inner", ".*/above belongs to user 65534"),
    ):
        link.unlink()
        link.symlink_to(tmp_path / target)
        with pytest.raises(NoPlace, match=f"cache/vmtax is a link, and {words}.*; set HOME or XDG_CACHE_HOME to"):
            cache_home()
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o1777, "nothing is changed through a link"


def test_a_base_that_another_user_could_rename_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs/home").mkdir(parents=True)
    os.chown(tmp_path / "theirs", 65534, 65534)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "theirs/home"))
    with pytest.raises(NoPlace, match="theirs belongs to user 65534, not to root; set HOME or XDG_DATA_HOME to"):
        data_home()


@pytest.mark.parametrize("home", ["", "relative", "."])
def test_a_home_that_is_none_is_reported(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    with pytest.raises(NoPlace, match=f"HOME is '{home}', not an absolute path; set HOME or XDG_CACHE_HOME to"):
        cache_home()


def test_a_user_without_an_entry_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(NoPlace, match="HOME is not set, and user 54321 has no entry in /etc/passwd; set HOME or XDG"):
        cache_home()


def test_no_program_comes_from_where_others_can_put_one(tmp_path: Path) -> None:
    for name in ("open", "theirs", "fine", "above/inner"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "open").chmod(0o1777)
    for name in ("above", "fine"):
        (tmp_path / name).chmod(0o775)
    os.chown(tmp_path / "above", 0, pwd.getpwuid(65534).pw_gid)
    os.chown(tmp_path / "theirs", 65534, 65534)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    unsafe = ("", ".", "bin", *(str(tmp_path / name) for name in ("open", "theirs", "above/inner", "link")))
    environment = {"PATH": ":".join(("/usr/bin", *unsafe, str(tmp_path / "fine")))}
    left_out = search_path.make_safe(environment)
    assert environment["PATH"] == f"/usr/bin:{tmp_path / 'fine'}"
    assert len(left_out) == len(unsafe) and left_out[0] == (
        "PATH: an empty part is left out: it means the current directory"
    )
    assert "belongs to user 65534, not to root" in left_out[-1]
    assert search_path.make_safe(environment) == []
    nothing = {"PATH": ""}
    search_path.make_safe(nothing)
    assert nothing["PATH"] == search_path.DEFAULT
