"""The commands in the README, as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.integration.conftest import vmtax
from vmtax.image.cache import Image

README = Path(__file__).parents[2] / "README.md"


def commands() -> list[list[str]]:
    """Every `vmtax ...` line of the first block under "Use"."""
    block = re.search(r"## Use\n.*?```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


def test_every_command_works_in_order(image: Image, tmp_path: Path) -> None:
    found = commands()
    assert len(found) >= 5 and all(argv[0] == "vmtax" for argv in found)
    for argv in found:
        # Where the tests run, no guest may boot with KVM.
        more = ["--emulate"] if argv[1] == "run" else []
        done = vmtax(*argv[1:], *more, directory=tmp_path)
        assert done.returncode == 0, f"{shlex.join(argv)}: {done.stderr}"
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
