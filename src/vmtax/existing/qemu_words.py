"""Split a command line of QEMU into options and their settings, whatever printed it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from vmtax.existing.guest import NoGuest, shown

PROGRAM = re.compile(r"(^|/)(qemu-system-(?P<arch>[\w]+)|qemu-kvm|kvm|qemu)(\.exe)?$")
# The program where an option follows it: `ps ax | grep kvm` names it as well.
COMMAND = re.compile(
    r"(?:(?<=[\s'\"(`=])|^)[\w./+~${}-]*(?<![\w.+-])(?:qemu-system-\w+|qemu-kvm|kvm|qemu)(?:\.exe)?(?=[\s\x01]+(?:-|$))",
    re.M,
)
# The next line of a log, of `ps` or of a terminal, and the end of a quotation in Markdown.
OTHER_LINE = re.compile(
    r"\d{4}-\d\d-\d\d|\S+\s+\d+\s+\d+(\.\d+)?\s|char device redirected|(\S*/)?qemu[\w-]*: |\S+@\S+[#$]|\s*```|</|\$ "
)
GOES_ON = re.compile(r"\\[ \t]*\r?\n")  # a shell's mark of a command that has another line
GONE_ON = "\x01"  # stands for it here
# Words of a report and a script's variables, and what they are among the options.
ELIDED, LEFT_OUT = re.compile(r"\.\.\.|…|\[\.\.\.\]|\[…\]|\$[\w{(@*].*"), "left-out"
LOOSE = "words that belong to no option of QEMU ({!r}): give the command line alone, without the text around it"
OF_SHELL = ("#", ">", "1>", "2>", "&", "|", ";")
WITHOUT_VALUE = frozenset(
    (
        *(
            "S",
            "s",
            "h",
            "help",
            "version",
            "usb",
            "snapshot",
            "daemonize",
            "nographic",
            "enable-kvm",
            "no-kvm",
            "curses",
        ),
        *("sdl", "full-screen", "no-quit", "no-frame", "alt-grab", "ctrl-grab", "nodefaults", "no-user-config"),
        *("nodefconfig", "no-reboot", "no-shutdown", "no-acpi", "no-hpet", "no-fd-bootchk", "enable-fips", "preconfig"),
        *("mem-prealloc", "win2k-hack", "rtc-td-hack", "singlestep", "one-insn-per-tb", "only-migratable", "portrait"),
        *("xen-attach", "no-kvm-irqchip", "no-kvm-pit", "no-kvm-pit-reinjection", "no-hax", "enable-sync-profile"),
    )
)
NARROWEST, WIDEST = 60, 1000  # columns of a terminal that may have wrapped a command line
SUFFIXES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass
class QemuOptions:
    """The options of a command line."""

    arch: str
    options: list[tuple[str, str]] = field(default_factory=list)

    def all(self, *names: str) -> Iterator[str]:
        return (value for name, value in self.options if name in names)

    def last(self, *names: str) -> str | None:
        found = list(self.all(*names))
        return found[-1] if found else None


def options_of(text: str) -> QemuOptions:
    """The options of the command line in a text, with whatever a shell, `ps` or a log has around it."""
    return options_of_words(*_words(text))


def options_of_words(words: Sequence[str], is_quoted: bool = True) -> QemuOptions:
    """The options of a program and its arguments. `is_quoted`: no argument can be in two words."""
    if not words:
        raise NoGuest("no command line of QEMU: no word is qemu-system-x86_64, qemu-kvm or kvm")
    match = PROGRAM.search(words[0])
    line = QemuOptions((match["arch"] if match else "") or "")
    is_taken = True  # the last option has its value, or takes none
    loose: list[str] = []
    for word in words[1:]:
        if is_option(word):
            name = word.lstrip("-")
            line.options.append((name, ""))
            is_taken = name in WITHOUT_VALUE
        elif word.startswith(OF_SHELL) and is_taken:
            break
        elif not is_taken:
            line.options[-1] = (line.options[-1][0], word)
            is_taken = True
        elif ELIDED.fullmatch(word):
            line.options.append((LEFT_OUT, word))
        elif not (is_quoted or loose) and line.options and _goes_on(*line.options[-1]):
            line.options[-1] = (line.options[-1][0], f"{line.options[-1][1]} {word}")
        else:
            loose.append(word)
            line.options.append(("hda", f"file={word}"))  # as QEMU takes a word without an option
    if loose and len(loose) + sum(word[0] == "$" for word in line.all(LEFT_OUT)) > 1:
        raise NoGuest(LOOSE.format(shown("", " ".join(loose))[:60]))
    if not line.options:
        raise NoGuest("a command line of QEMU without options; is it cut off?")
    return line


def is_option(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _goes_on(option: str, value: str) -> bool:
    """Whether a value may have spaces: `ps` prints those as it prints the ones between words."""
    return option in ("append", "name") or "=" in value


def _is_whole(value: str) -> bool:
    return value.count("{") == value.count("}") and value.count("[") == value.count("]")


def is_command_line(text: str) -> bool:
    """Whether QEMU is started in the text."""
    return _command(text) != ""


def _command(text: str) -> str:
    """The command line without what stands around it: a prompt, variables, columns of `ps`, quotes of an error."""
    if "\0" in text:
        words = [word for word in text.split("\0") if word]
        start = next((place for place, word in enumerate(words) if PROGRAM.search(word)), len(words))
        return "\0".join(words[start:])
    text = GOES_ON.sub(f" {GONE_ON} ", text)
    text = _unwrapped(text) or text
    begin = next((match for match in COMMAND.finditer(text) if not _is_comment(text, match.start())), None)
    if begin is None:
        return ""
    quote = text[begin.start() - 1] if begin.start() else ""
    is_quoted = quote in ("'", '"') and quote in text[begin.end() :]
    return _lines_joined(text[begin.start() : text.rindex(quote) if is_quoted else len(text)])


def _is_comment(text: str, place: int) -> bool:
    return text[:place].rpartition("\n")[2].strip()[:1] == "#"


def _unwrapped(text: str) -> str:
    """The text without the ends of lines that a terminal made; "" if no terminal wrapped it."""
    lines = text.splitlines()
    width = max(map(len, lines), default=0)
    # A space at the end of a line is lost when it is copied.
    is_full = [len(line) >= width - 1 for line in lines]
    longest = max((len(list(run)) for full, run in groupby(is_full) if full), default=0)
    if not (NARROWEST <= width <= WIDEST and len(lines) > 1 and longest >= min(3, max(1, len(lines) - 4))):
        return ""
    whole = ""
    for number in range(len(lines) - 1):
        line = lines[number]
        goes_on = is_full[number] and not OTHER_LINE.match(lines[number + 1])
        if goes_on and re.search(r"\w-$", line) and re.match(r" \w", lines[number + 1]):
            whole += line  # a mail program's: it wraps behind a hyphen, and begins the next line with a space
            lines[number + 1] = lines[number + 1].lstrip()
            continue
        whole += line + (("" if len(line) == width else " ") if goes_on else "\n")
    return whole + lines[-1]


def _lines_joined(text: str) -> str:
    """The lines of a command as one, those that follow it left out: a log's next line, a script's next command."""
    lines = text.splitlines() or [""]
    others = (number for number, line in enumerate(lines) if number and _is_other(line, lines[0]))
    whole = lines[0].strip()
    for line in lines[1 : next(others, len(lines))]:
        if line.lstrip()[:1] == "#":
            continue
        # A mail program wraps behind a hyphen or a comma.
        is_inside = re.search(r"[\w.][-,=:]$", whole[-2:]) or line.startswith(",")
        whole += line.strip() if is_inside else f" {line.strip()}"
    return whole.replace(GONE_ON, " ").strip()


def _is_other(line: str, first: str) -> bool:
    """Whether a line is no part of a command. `first`: the command's first line."""
    is_script = GONE_ON in first  # whose lines all say that they go on, or else have options in spite of it
    return OTHER_LINE.match(line) is not None or (is_script and not is_option(line.lstrip()))


def _words(text: str) -> tuple[list[str], bool]:
    """The words of a command line, from its program on: quoted for a shell, with NULs between them, or wrapped by a
    terminal or a mail program; and whether a value with spaces is a single word.
    """
    text = _command(text)
    if "\0" in text:
        return text.split("\0"), True
    if (
        re.search(r"""['"]""", text)
        and not re.search(r"""(?<![\s=,:{\[])["'](?=[\w])""", text)
        and _has_shell_quotes(text)
    ):
        try:
            return shlex.split(text, comments=False), True
        except ValueError as error:
            raise NoGuest(f"a command line that cannot be read: {error}".lower()) from error
    return _plain_words(text), False


def _has_shell_quotes(text: str) -> bool:
    """Whether quotes are a shell's: `ps` prints JSON without any around it."""
    return re.search(r"""\s'[^']*'(\s|$)""", text) is not None or re.search(r"""\s-\S+\s+\{""", text) is None


def _plain_words(text: str) -> list[str]:
    """Words without a shell's quotes, in which a JSON object is one word."""
    words: list[str] = []
    for word in text.split():
        if words and words[-1][:1] == "{" and not _is_whole(words[-1]):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def settings_of(value: str, first: str) -> dict[str, str]:
    """The settings of "virtio-blk-pci,drive=d,iothread=i", or of JSON; `first` names the one without a name."""
    if value.lstrip()[:1] == "{":
        return {key: _word(each) for key, each in _flat(_json(value)).items() if each is not None}
    found: dict[str, str] = {}
    for number, part in enumerate(_parts(value)):
        name, is_named, setting = part.partition("=")
        if is_named:
            found[name.strip()] = setting
        elif number == 0:
            found[first] = part
        elif part.strip():
            name = part.strip()
            found[name.removeprefix("no") if name.startswith("no") and len(name) > 4 else name] = (
                "off" if name.startswith("no") and len(name) > 4 else "on"
            )
    return found


def _parts(value: str) -> list[str]:
    """Split at commas; two commas are one in a value."""
    return [part.replace("\0", ",") for part in value.replace(",,", "\0").split(",")]


def _json(value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise NoGuest(f"JSON that cannot be read: {shown('', value)[:60]}…; is it cut off?") from None
    return found if isinstance(found, dict) else {}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in value.items():
        found.update(_flat(each, f"{prefix}{key}.") if isinstance(each, dict) else {f"{prefix}{key}": each})
    return found


def _word(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def size_of(text: str, default: int) -> int | None:
    match = re.fullmatch(r"(\d{1,15})(?:\.\d+)?\s*([bkmgt]?)(i?b)?", text.strip().lower(), re.ASCII)
    return int(match[1]) * (SUFFIXES[match[2]] if match[2] else default) if match else None
