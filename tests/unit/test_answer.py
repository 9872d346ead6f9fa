"""Whatever a guest or a far host prints in place of a number or of JSON ends as one error that names the machine."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from typing_extensions import TypedDict

from tests.fake_machine import FakeMachine, Reply
from vmtax.machine import MachineError
from vmtax.machine.answer import (
    boot_id_of,
    json_of,
    json_or_none,
    number_of,
    object_or_none,
    sha256_of,
    table_of,
    whole_of,
    words_of,
)
from vmtax.storage.file import check_free
from vmtax.storage.ground import refuse_used

BOOT = "8d9a4c3c-28b5-4b6e-9d0a-3f0f2f3c8f51"


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1e400", "1e10", "twelve", "1 2", "x" * 10_000, "1" * 5000])
def test_what_is_no_possible_number_is_shown(text: str) -> None:
    with pytest.raises(
        MachineError, match=r"^host: uptime: a number from 0 to 1e\+10 must stand there, not '"
    ) as caught:
        number_of(FakeMachine(), "uptime", text, most=1e10)
    assert len(str(caught.value)) < 200


def test_numbers_are_taken_with_the_space_around_them() -> None:
    assert number_of(FakeMachine(), "uptime", " 12.5\n") == 12.5


@pytest.mark.parametrize("text", ["1_0", "+1", "1e3", "0x1", "\u0661", ".5", "5.", "1,5", "-0"])
def test_only_digits_make_a_number(text: str) -> None:
    with pytest.raises(MachineError, match="must stand there, not '"):
        number_of(FakeMachine(), "uptime", text)
    with pytest.raises(MachineError, match="a whole decimal number below 100 must stand there, not '"):
        whole_of(FakeMachine(), "count", text, most=100)


@pytest.mark.parametrize("text", ["", "g", "-1", "0x1f", "1" * 17, "ffffffffffffffff"])
def test_a_number_in_base_16(text: str) -> None:
    assert whole_of(FakeMachine(), "mask", " 1F\n", base=16) == 31
    with pytest.raises(MachineError, match=r"^host: mask: a whole hexadecimal number below"):
        whole_of(FakeMachine(), "mask", text, base=16)


@pytest.mark.parametrize("text", ["", "a", "a b c", " \n", "a b\nc d"])
def test_words_are_as_many_as_are_taken(text: str) -> None:
    assert words_of(FakeMachine(), "stat", " a b\n", 2) == ["a", "b"]
    with pytest.raises(MachineError, match=r"^host: stat: 2 words must stand there, not '"):
        words_of(FakeMachine(), "stat", text, 2)


def test_one_word_at_least_and_every_line_of_a_table() -> None:
    assert words_of(FakeMachine(), "a", "x y z") == ["x", "y", "z"]
    with pytest.raises(MachineError, match=r"^host: a: a word must stand there, not ''"):
        words_of(FakeMachine(), "a", "")
    with pytest.raises(MachineError, match=r"^host: a: 3 words must stand there, not 'file,,'"):
        words_of(FakeMachine(), "a", "file,,", 3, ",")
    assert table_of(FakeMachine(), "a", "x 1\n\ny 2\n", 2) == [["x", "1"], ["y", "2"]]
    with pytest.raises(MachineError, match=r"^host: a: 2 words must stand there, not 'y'"):
        table_of(FakeMachine(), "a", "x 1\ny\n", 2)


@pytest.mark.parametrize("text", ["", "boot", "0" * 32, "8D9A4C3C-28B5-4B6E-9D0A-3F0F2F3C8F51", "\x1b[2J", f"{BOOT}x"])
def test_the_id_of_a_boot(text: str) -> None:
    assert boot_id_of(FakeMachine(), "boot_id", f"{BOOT}\n") == BOOT
    with pytest.raises(MachineError, match=r"^host: boot_id: the id of a boot, such as"):
        boot_id_of(FakeMachine(), "boot_id", text)


@pytest.mark.parametrize("text", ["", "  file", "a" * 63 + "  file", "A" * 64, "\\" + "a" * 64])
def test_a_digest(text: str) -> None:
    assert sha256_of(FakeMachine(), "sha256sum", "a" * 64 + "  file\n") == "a" * 64
    with pytest.raises(MachineError, match=r"^host: sha256sum: a sha256 must stand there, not '"):
        sha256_of(FakeMachine(), "sha256sum", text)


class Row(TypedDict):
    name: str
    mtu: int


ODD_JSON = (
    *("", "{}", "null", "3", '"x"', "[3]", "[null]", "[[]]", '[{"name": "a"}]', '[{"name": 3, "mtu": 1}]', "[{}]"),
    *('[{"name": "a", "mtu": "1"}]', '[{"name": "a", "mtu": 1.5}]', '[{"name": "a", "mtu": true}]', "[" * 100_000),
    *('[{"name": "a", "mtu": NaN}]', '[{"name": "a", "mtu": null}]', "not json", '[{"name": "a", "mtu": 1}', "\0"),
    *(f'[{{"name": "a", "mtu": {"9" * 5000}}}', "\ud800", '[{"name": "a", "mtu": 1}] x', '{"a": ' * 5000),
)


@pytest.mark.parametrize("text", ODD_JSON, ids=range(len(ODD_JSON)))
def test_json_of_another_kind_is_one_line(text: str) -> None:
    with pytest.raises(MachineError, match=r"^host: ip link: its usual JSON must stand there, not '") as caught:
        json_of(FakeMachine(), "ip link", text, list[Row])
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    assert json_or_none(text, list[Row]) is None


def test_json_says_where_it_is_wrong_and_may_have_more() -> None:
    with pytest.raises(MachineError, match=r"\(1\.mtu: "):
        json_of(FakeMachine(), "ip link", '[{"name": "a", "mtu": 1}, {"name": "b", "mtu": []}]', list[Row])
    assert json_of(FakeMachine(), "ip link", '[{"name": "a", "mtu": 1, "x": 2}]', list[Row]) == [
        {"name": "a", "mtu": 1}
    ]


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "[" * 100_000, "{", '{"a": ' * 5000, "9" * 5000])
def test_an_object_or_none(text: str) -> None:
    assert object_or_none('{"a": [1]}') == {"a": [1]}
    assert object_or_none(text) is None


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
