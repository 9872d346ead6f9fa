"""Windows behind ssh, as far as it is text: command lines, encodings, the task that cleans up, the shell of a login."""

from __future__ import annotations

import base64
import re
import string
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PureWindowsPath
from xml.etree import ElementTree

import pytest

from vmtax.machine.login_shell import PROBE, LoginShell, WindowsThere, windows_shell
from vmtax.machine.windows import room, task
from vmtax.machine.windows.command import MOST_OF_POWERSHELL, WindowsCommand
from vmtax.machine.windows.command_line import MOST_CHARACTERS, BadCommandLine, encoded, quoted
from vmtax.machine.windows.machine import Windows
from vmtax.machine.windows.text import code_page_of, decoded, encoding_of
from vmtax.machine.windows.transport import _in_batch, _remote

PRINTABLE = [each for each in string.printable if each.isprintable() and each != "%"]


def through_cmd(line: str) -> str:
    """What cmd.exe makes of a line, as far as we use its rules: outside of quotation marks a caret takes the meaning of
    the next character, and these end the command. Raises AssertionError if one ends it.
    """
    passed, is_quoted, characters = [], False, iter(line)
    for each in characters:
        assert each != "%", "it would be replaced"
        if is_quoted or each not in "^&|<>\n":
            is_quoted ^= each == '"'
            passed.append(each)
            continue
        assert each == "^", f"{each!r} ends the command"
        passed.append(next(characters))
    return "".join(passed)


def as_argv(line: str) -> list[str]:
    """By the documented rules of CommandLineToArgvW, which are other code than what writes the line."""
    return list(_words(line))


def _words(line: str) -> Iterator[str]:
    word, is_quoted, slashes, has_begun = "", False, 0, False
    for each in [*line, " "]:
        if each == "\\":
            slashes, has_begun = slashes + 1, True
            continue
        if each == '"':
            word += "\\" * (slashes // 2)
            if slashes % 2:
                word += '"'
            else:
                is_quoted = not is_quoted
            slashes, has_begun = 0, True
            continue
        word += "\\" * slashes
        slashes = 0
        if each in " \t" and not is_quoted:
            if has_begun:
                yield word
            word, has_begun = "", False
        else:
            word, has_begun = word + each, True


WORDS = (
    *("", " ", "a b", 'q"q', '"', '""', "a\\", "a b\\", "a b\\\\", '\\"', 'a\\\\"b', "^", "^^", "&x", "|", "<>", "(a)"),
    *(
        "!x!",
        "a,b;c=d",
        "it's",
        "äöü",
        "日本",
        "*?",
        "@",
        "~`$#{}[]",
        "C:\\x y\\",
        "\t",
        "--filename=C\\:\\x\\f",
        "a&b c",
    ),
)


@pytest.mark.parametrize("word", [*PRINTABLE, "".join(PRINTABLE), *WORDS])
@pytest.mark.varied(20)
def test_an_argument_arrives_as_it_is(word: str) -> None:
    line = quoted(["C:\\vmtax\\program.exe", "before", word, "after"])
    assert as_argv(through_cmd(line)) == ["C:\\vmtax\\program.exe", "before", word, "after"]


@pytest.mark.parametrize(
    "program", ["fio.exe", "C:\\Program Files (x86)\\a & b\\fio.exe", "C:\\a^b\\f=1.exe", "C:\\!\\f"]
)
def test_a_program_may_lie_anywhere(program: str) -> None:
    """No caret before its quotation marks: cmd.exe would end its name at the first space."""
    line = quoted([program, "a b"])
    assert line.startswith((program, f'"{program}"'))
    assert as_argv(through_cmd(line)) == [program, "a b"]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["f", "%TEMP%"], "percent signs"),
        (["f", "50%"], "percent signs"),
        (["f%", "x"], "percent signs"),
        (["f", "a\nb"], "control characters"),
        (["f", "a\rb"], "control characters"),
        (["f", "a\0b"], "control characters"),
        (["f", "\x1a"], "control characters"),
        (['"f"', "x"], "quotation mark"),
        (["f", "x" * 32_000], f"32002 characters, and Windows takes {MOST_CHARACTERS}"),
        (["f", "^" * 5000], "10002 characters"),
    ],
)
def test_what_no_line_can_say_is_refused_in_one_line(argv: list[str], why: str) -> None:
    with pytest.raises(BadCommandLine) as refused:
        quoted(argv)
    assert why in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 300


def test_the_longest_line_is_taken() -> None:
    assert len(quoted(["f", "x" * (MOST_CHARACTERS - 2)])) == MOST_CHARACTERS


@pytest.mark.parametrize("script", ["'a' | % { $_ }", '"$env:OS"\n"b=ü日"', ""])
def test_powershell_gets_any_script(script: str) -> None:
    line = encoded(script)
    assert base64.b64decode(line.rpartition(" ")[2]).decode("utf-16-le") == script
    assert re.fullmatch(r"[\w /+=-]+", line), "no shell changes any of its characters"


def test_a_script_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadCommandLine, match=r"a script for PowerShell.*characters"):
        encoded("x" * 4000)


@pytest.mark.parametrize(
    ("answer", "shell"),
    [
        ("Windows_NT$env:OS\r\n", "cmd.exe"),
        ("Welcome to WIN7\r\n\r\nWindows_NT$env:OS\r\n", "cmd.exe"),
        ("%OS%Windows_NT\r\n", "PowerShell"),
        ("%OS%:OS\n", None),  # dash, bash, zsh
        ("%OS%\n", None),  # fish
        ("env: Undefined variable.\n", None),  # csh
        ("W\0i\0n\0d\0o\0w\0s\0_\0N\0T\0$\0e\0n\0v\0:\0O\0S\0\r\0\n\0", "cmd.exe"),
        ("This account is not available.\n", None),
        ("", None),
    ],
)
def test_the_shell_of_a_login_is_recognised(answer: str, shell: LoginShell | None) -> None:
    assert windows_shell(answer) == shell


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_posix_shell_is_not_taken_for_windows(shell: str) -> None:
    assert windows_shell(subprocess.run([shell, "-c", PROBE], capture_output=True, text=True).stdout) is None


def test_windows_as_a_host_is_refused_with_what_works() -> None:
    text = str(WindowsThere("host", "me@win", "cmd.exe"))
    assert text.startswith("host: ssh me@win: is Windows, whose shell is cmd.exe: ")
    assert "--guest ssh://user@host" in text
    assert "never run on Windows" in text
    assert len(text.splitlines()) == 1


UMLAUTS, KANJI = "Gerät läuft: 5 µs", "電源プラン"


@pytest.mark.parametrize(
    ("data", "page", "text"),
    [
        (UMLAUTS.encode(), None, UMLAUTS),
        (KANJI.encode(), 932, KANJI),  # UTF-8, as we asked for, whatever the page was
        (UMLAUTS.encode("cp437"), 437, UMLAUTS),
        (UMLAUTS.encode("cp850"), 850, UMLAUTS),
        (UMLAUTS.encode("cp1252"), 1252, UMLAUTS),
        (KANJI.encode("cp932"), 932, KANJI),
        (UMLAUTS.encode(), 65001, UMLAUTS),
        (UMLAUTS.encode("cp1252"), None, UMLAUTS),
        (b"\xff\xfe" + KANJI.encode("utf-16-le"), 850, KANJI),
        (b"\xfe\xff" + KANJI.encode("utf-16-be"), None, KANJI),
        (b"\xef\xbb\xbf" + KANJI.encode(), None, KANJI),
        ("name=value\r\n".encode("utf-16-le"), None, "name=value\n"),  # without a mark
        (b"a\r\nb\r\r\nc\rd\n", None, "a\nb\nc\nd\n"),
        (b"\x81", 932, "\ufffd"),
        (b"", 437, ""),
        (b"ok", 437, "ok"),
        (b"a\0b\0", 437, "ab"),
        (b"\0\0\0\0", None, "\0\0\0\0"),
    ],
)
def test_any_encoding_of_windows_is_read(data: bytes, page: int | None, text: str) -> None:
    assert decoded(data, page) == text


def test_nothing_that_is_printed_raises() -> None:
    for page in (None, 437, 850, 932, 1252, 65001, 12345):
        for first in range(256):
            assert isinstance(decoded(bytes([first, 0xE9, 0x00, first]), page), str)
    assert encoding_of(b"\xe9", 12345) == "cp1252"


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        ("Active code page: 437\n", 437),
        ("Aktive Codepage: 850.\n", 850),
        ("現在のコード ページ: 932\n", 932),
        ("Page de codes active : 65001", 65001),
        ("Active code page: 0\n", None),
        ("Active code page: 99999\n", None),
        ("", None),
        ("'chcp' is not recognized", None),
    ],
)
def test_the_code_page_is_read_in_any_language(answer: str, page: int | None) -> None:
    assert code_page_of(answer) == page


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        ("  0 File(s)              0 bytes\n  15 Dir(s)  79734747136 bytes free\n", 79734747136),
        ("  0 Datei(en),           0 Bytes\n   2 Verzeichnis(se), 1024 Bytes frei\n", 1024),
        ("   0 個のファイル  0 バイト\n   3 個のディレクトリ  12884901888 バイトの空き領域\n\n", 12884901888),
        ("   2 Dir(s)  0 bytes free\n", 2),
        ("File Not Found\n", None),
        ("", None),
        ("   2 Dir(s)\n", None),
    ],
)
def test_free_room_is_read_in_any_language(answer: str, free: int | None) -> None:
    assert room.free_bytes(answer) == free


def command() -> WindowsCommand:
    return WindowsCommand.of(["fio.exe", "a b"], "cmd.exe", PureWindowsPath("C:\\vmtax a"))


@pytest.mark.parametrize(
    ("stdout", "stderr", "ended"),
    [
        (b"W\r\nout\r\nW 0\r\n", b"W\r\n", ("out\n", "", 0)),
        (b"W\r\nno newlineW 7\r\n", b"W\r\nbad\r\n", ("no newline", "bad\n", 7)),
        (b"W\r\nW -1073741819\r\n", b"W\r\n", ("", "", -1073741819)),
        (b"a banner\r\nW\r\n\xff\xfea\0\r\0\n\0W 300\r\n", b"motd\nW\r\n", ("a\n", "", 300)),
        (b"W\r\nhalf", b"W\r\n", ("half", "", None)),
        (b"W\r\nW 5\r\nout\r\nW 3\r\n", b"W\r\n", ("W 5\nout\n", "", 3)),
        (b"W\r\n\x84\r\nW 0\r\n", b"", ("ä\n", "", 0)),
        (b"W \r\nout\nW 0", b"W \r\n", ("out\n", "", 0)),
        (b"nothing", b"ssh: no", None),
        (b"", b"", None),
    ],
)
def test_a_command_is_told_from_a_logins_words(
    stdout: bytes, stderr: bytes, ended: tuple[str, str, int | None] | None
) -> None:
    one = command()
    word = one.word.encode()
    found = one.ended(stdout.replace(b"W", word), stderr.replace(b"W", word), 850)
    if ended is None:
        assert found is None
        return
    assert found is not None
    assert (found.stdout.replace(one.word, "W"), found.stderr, found.code) == ended


def test_a_command_begins_in_our_directory_and_tells_its_exit_code() -> None:
    line = command().line
    assert 'cd /d "C:\\vmtax a"&& fio.exe ^"a b^"& call echo vmtax-' in line
    assert line.endswith(" %^errorlevel%")
    assert not re.search(r"\d>", line), "cmd.exe takes a digit before > for a file"


def test_powershell_hands_the_same_line_to_cmd() -> None:
    one = WindowsCommand.of(["fio.exe", "it's"], "PowerShell")
    script = base64.b64decode(one.line.rpartition(" ")[2]).decode("utf-16-le")
    assert "fio.exe it''s& call" in script
    with pytest.raises(BadCommandLine):
        WindowsCommand("x" * MOST_OF_POWERSHELL, "PowerShell")


NOW = datetime(2026, 11, 27, 23, 30, tzinfo=UTC)


def test_the_task_ends_our_programs_then_removes_our_directory() -> None:
    data = task.removal_task(PureWindowsPath("D:\\a & b\\vmtax-1"), ["fio-1.exe"], NOW)
    assert data.startswith(b"\xff\xfe"), "schtasks reads UTF-16 with its mark"
    tree = ElementTree.fromstring(data)
    texts = {each.tag.rpartition("}")[2]: each.text for each in tree.iter()}
    actions = [(one[0].text, one[1].text) for one in tree.iter() if one.tag.endswith("Exec")]
    assert actions[0] == ("taskkill.exe", "/f /im fio-1.exe")
    assert {*actions[1:-1]} == {("cmd.exe", '/c ping -n 3 127.0.0.1 >nul& rmdir /s /q "D:\\a & b\\vmtax-1"')}
    assert actions[-1] == ("schtasks.exe", "/delete /tn vmtax-1 /f"), "no task stays for a year"
    assert texts["StartBoundary"] == "2026-11-30T23:30:00Z"
    assert texts["UserId"] == "S-1-5-18"
    assert texts["StartWhenAvailable"] == "true"
    assert texts["DeleteExpiredTaskAfter"] == "PT0S"
    assert texts["EndBoundary"], "a task without an end is not deleted when it expires"


def test_each_command_about_the_task_fits_a_line() -> None:
    file = PureWindowsPath("C:\\Users\\A B\\vmtax-1\\task.xml")
    assert quoted(task.creation("vmtax-1", file)) == f'schtasks /create /tn vmtax-1 /xml ^"{file}^" /f'
    assert quoted(task.deletion("vmtax-1")) == "schtasks /delete /tn vmtax-1 /f"
    assert quoted(task.ending("fio-1.exe")) == "taskkill /f /im fio-1.exe"
    assert task.leftovers("vmtax-1", file.parent) == (
        '(if exist "C:\\Users\\A B\\vmtax-1" echo directory)& '
        '(if exist "%SystemRoot%\\System32\\Tasks\\vmtax-1" echo task)'
    )


def test_programs_have_names_of_the_run_by_which_they_are_ended() -> None:
    system = Windows(PureWindowsPath("C:\\vmtax-07"), "07")
    assert system.program("fio") == "C:\\vmtax-07\\fio-07.exe"
    assert system.program("/usr/games/stockfish") == "C:\\vmtax-07\\stockfish-07.exe"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("C:\\vmtax\\f", '"/C:/vmtax/f"'),
        ("D:\\a b\\[x]", '"/D:/a b/\\[x]"'),
        ("C:\\Users\\ADMINI~1\\f", '"/C:/Users/ADMINI~1/f"'),
    ],
)
def test_paths_for_its_sftp_server(path: str, word: str) -> None:
    assert _remote(PureWindowsPath(path)) == word


def test_sftp_takes_no_character_for_a_pattern() -> None:
    assert _in_batch('a"b\\c*d?') == '"a\\"b\\\\c\\*d\\?"'
