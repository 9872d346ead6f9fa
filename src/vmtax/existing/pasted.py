"""A description of a guest as people keep it: encoded by an editor or a mail program, quoted, in a log or a script."""

from __future__ import annotations

import json
import quopri
import re

from vmtax.existing.qemu_words import is_command_line

PROGRAM = r"\b(?:qemu-system-\w+|qemu-kvm)\b"
# A script whose options stand in a variable.
OF_SCRIPT = re.compile(rf"{PROGRAM}['\"]?\s+(?:\\\s+)?['\"]?\$[\w{{(@*]")
IN_VARIABLES = (
    "a script that has QEMU's options in variables: while the guest runs, qemu:PID, or what `ps` prints of it"
)
OF_MAIL = 3  # equals signs that are written as in mail (quoted-printable)
QUOTED = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
# A shell's assignment: its variable, whether it adds to that, a quote and the value.
ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)(\+?)=([\"'])(.*)\3[ \t]*(?:#.*)?$", re.MULTILINE)
CONDITION = re.compile(r"^[ \t]*(?:if|case|for|while)\b|^[^#\n]*(?:&&|\|\|)[ \t]*\w+\+?=", re.MULTILINE)


def decoded(content: bytes) -> str:
    """The text, whatever a Windows editor or an archive of mail made of it."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if text.count("=3D") >= OF_MAIL:
        text = quopri.decodestring(text.encode()).decode("utf-8", errors="replace")
    return _logged(text) or _of_script(_unquoted(text))


def _logged(text: str) -> str:
    """The command line in a log of JSON, as KubeVirt writes it: without the ends of its lines; "" if there is none."""
    for line in text.splitlines():
        if '"msg":' in line and re.search(r"qemu-(?:system-\w+|kvm) ", line):
            try:
                said = json.loads(line[line.index("{") :]).get("msg", "")
            except (ValueError, RecursionError, AttributeError):
                continue
            return re.sub(r" \\(?=\S)", " ", str(said))
    return ""


def _unquoted(text: str) -> str:
    """Without the marks of a quotation, as in mail and in Markdown: each line has one."""
    lines = [line for line in text.splitlines() if line.strip()]
    return QUOTED.sub("", text) if lines and all(map(QUOTED.match, lines)) else text


def has_options_in_variables(text: str) -> bool:
    """Whether a script has some of QEMU's options elsewhere than in the command."""
    return OF_SCRIPT.search(text) is not None or bool(_added_to(text))


def _of_script(text: str) -> str:
    """The command to which a script adds option after option; the text as it is if it depends on anything else."""
    name = _added_to(text)
    lines = [line for line in ASSIGNED.findall(text) if line[0] == name]
    every = re.findall(rf"^[ \t]*(?:export[ \t]+)?{name}\+?=", text, re.MULTILINE)
    if not name or CONDITION.search(text) or len(lines) < len(every):
        return text
    value = " ".join(_without(name, line[-1]) for line in lines)
    if is_command_line(value):
        return value
    program = re.search(rf"(\S*{PROGRAM})\s+\$(?:{name}|{{{name}}})[ \t]*$", text, re.MULTILINE)
    return f"{program[1]} {value}" if program else text


def _added_to(text: str) -> str:
    """The last variable of QEMU's command to which a line of its own adds something; "" if there is none."""
    names = [name for name, plus, _, value in ASSIGNED.findall(text) if plus or value != _without(name, value)]
    return next((name for name in reversed(names) if _is_of_command(text, name)), "")


def _is_of_command(text: str, name: str) -> bool:
    """Whether the command stands in a variable, or takes words of it."""
    stands = rf"^[ \t]*(?:export[ \t]+)?{name}\+?=[^\n]*{PROGRAM}"
    takes = rf"{PROGRAM}(?:\\\n|[^\n])*\$(?:{name}\b|{{{name}\b)"
    return re.search(f"{stands}|{takes}", text, re.MULTILINE) is not None


def _without(name: str, value: str) -> str:
    """What a value adds to its variable's former one."""
    return re.sub(rf"^\$(?:{name}\b|{{{name}}})", "", value)
