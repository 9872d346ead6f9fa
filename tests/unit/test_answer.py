"""Whatever a guest or a far host prints in place of a number or of JSON ends as one error that names the machine."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.machine import MachineError
from vmtax.machine.answer import number_of, rows_of
from vmtax.storage.file import check_free
from vmtax.storage.ground import refuse_used


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1e400", "1e10", "twelve", "1 2", "x" * 10_000, "1" * 5000])
def test_what_is_no_possible_number_is_shown(text: str) -> None:
    with pytest.raises(
        MachineError, match=r"^host: uptime: a number from 0 to 1e\+10 must stand there, not '"
    ) as caught:
        number_of(FakeMachine(), "uptime", text, most=1e10)
    assert len(str(caught.value)) < 200


def test_numbers_are_taken_with_the_space_around_them() -> None:
    assert number_of(FakeMachine(), "uptime", " 12.5\n") == 12.5


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [3]}', "[" * 100_000])
def test_what_is_not_the_json_is_shown(text: str) -> None:
    with pytest.raises(MachineError, match=r"^host: table: JSON with a list of rows must stand there, not '"):
        rows_of(FakeMachine(), "table", text, "rows")


@pytest.mark.parametrize("text", ["", "7", "7 nan", "many few"])
def test_free_room_that_is_no_number(text: str) -> None:
    machine = FakeMachine(answers={lambda argv: argv[0] == "stat": text})
    with pytest.raises(MachineError, match=r"^host: free blocks of /srv"):
        check_free(machine, PurePosixPath("/srv"), 1)


@pytest.mark.parametrize("text", ["{}", '{"blockdevices": [{}]}', '{"blockdevices": [{"name": "sda"}]}'])
def test_block_devices_without_a_name(text: str) -> None:
    machine = FakeMachine(answers={lambda argv: argv[0] == "lsblk": Reply(stdout=text)})
    with pytest.raises(MachineError, match=r"^host: what stands on /dev/sda"):
        refuse_used(machine, "/dev/sda", erase=False)
