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
QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
# A line that goes on, with what a shell in a terminal prints before the next one, and such a line with an option.
PROMPTED = re.compile(r"(\\[ \t]*\n)[ \t]*>[ \t]")
PROMPTED_OPTION = re.compile(rf"{PROMPTED.pattern}+-")
# A shell's assignment: its variable, whether it adds to that, a quote and the value.
ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)(\+?)=([\"'])(.*)\3[ \t]*(?:#.*)?$", re.MULTILINE)
NOT_RUN = re.compile(r"[ \t]*(?:#|echo\b|printf\b)")
CONDITION = re.compile(r"^[ \t]*(?:if|case|for|while)\b|^[^#\n]*(?:&&|\|\|)[ \t]*\w+\+?=", re.MULTILINE)


def decoded(content: bytes) -> str:
    """The text without what an editor, a mail program, a terminal, a log or a script put around it."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if text.count("=3D") >= OF_MAIL:
        text = quopri.decodestring(text.encode()).decode("utf-8", errors="replace")
    return _logged(text) or _of_script(_unprompted(_unquoted(text)))


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


def _unprompted(text: str) -> str:
    """Without a terminal's prompts for the lines of a command; with no option behind it, `>` may be a redirection."""
    return PROMPTED.sub(r"\1", text) if PROMPTED_OPTION.search(text) else text


def _of_script(text: str) -> str:
    """The command to which a script adds option after option; the text as it is if it depends on anything else."""
    name = added_to(text)
    if not name or CONDITION.search(text):
        return text
    values = [(plus, value) for variable, plus, _, value in ASSIGNED.findall(text) if variable == name]
    others = ASSIGNED.sub(lambda match: "" if match[1] == name else match[0], text)
    uses = [line for line in others.splitlines() if re.search(rf"\b{name}\b", line) and not NOT_RUN.match(line)]
    run = re.compile(rf"[ \t]*(?:(?:exec|sudo|eval)[ \t]+)*(\S*{PROGRAM}[ \t]+)?\"?\$(?:{name}|{{{name}}})\"?[ \t]*")
    runs = [run.fullmatch(line) for line in uses]
    is_reset = any(not plus and value == _without(name, value) for plus, value in values[1:])
    if is_reset or len(runs) > 1 or not all(runs):
        return text
    program = runs[0][1] if runs and runs[0] else None
    whole = (program or "") + "".join(_without(name, value) for _, value in values)
    return whole if is_command_line(whole) else text


def added_to(text: str) -> str:
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
