"""Files that a command writes: in one step, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from vmtax.cli.app import BadUse, write_file


def test_a_report_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link = tmp_path / "r.html", tmp_path / "latest.html"
    link.symlink_to(file)
    write_file(link, b"first")
    assert file.read_bytes() == b"first" and link.is_symlink()

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as stream:
            stream.write(data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(BadUse, match=r"r.html: No space left on device; name another file with --output"):
            write_file(file, b"second")
    assert file.read_bytes() == b"first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.html", "r.html"]


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    write_file(Path("/dev/null"), b"text")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(BadUse, match=r"Is a directory"):
        write_file(tmp_path, b"text")
