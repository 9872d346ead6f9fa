"""What a machine prints is parsed in one place: read from the syntax tree of the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.raw_answers import raw_parses

ROOT = Path(__file__).parents[2] / "src/vmtax"
TYPED = ("machine/answer.py", "meter/text.py")
BOUNDED = "its patterns let a bounded number of digits through, and as many groups as are taken"
OURS = "no answer of a machine: made here"
# File and function -> why it may parse by itself.
ALLOWED = {
    "container/seccomp.py translate": "read_filter turns each of its exceptions into one line that names the file",
    "container/seccomp.py _rule": "as translate, which calls it",
    "cli/measuring.py _leave": "`load` is the store's",
    "container/seccomp.py _error_number": "as translate, which calls it",
    "container/seccomp.py _version": "as translate, which calls it",
    "experiment/migrate.py _trial": OURS,
    "existing/numa.py host_nodes": BOUNDED,
    "hypervisor/qemu/detect.py _user": BOUNDED,
    "hypervisor/qemu/detect.py _numbers": BOUNDED,
    "hypervisor/qemu/exit_trace.py parse_reasons": BOUNDED,
    "hypervisor/qemu/exit_trace.py parse_counts": BOUNDED,
    "hypervisor/qemu/memory.py parse_smaps": BOUNDED,
    "hypervisor/qemu/memory.py _mappings": BOUNDED,
    "hypervisor/qemu/threads.py parse_threads": BOUNDED,
    "image/build.py _bootstrap": "`unpack` is the name of a command",
    "machine/guarded.py __init__": "Guard._answer has checked the type of each key",
    "machine/guarded.py ask": "Guard._answer has checked the type of each key",
    "machine/guarded.py hold": "Guard._answer has checked the type of each key",
    "machine/guarded.py _undone": "a line that is not the guard's own has no such number",
    "machine/reader.py _ask": BOUNDED,
    "machine/ssh_options.py _known": OURS,
    "machine/tools.py read": "each line that lacks two tabs, or whose code has more than four digits, is left out",
    "meter/below.py read_below": OURS,
    "meter/below.py signatures": "a ValueError leaves the line out",
    "meter/clock.py read": BOUNDED,
    "meter/disk.py disk_facts": "rows of parse_lsblk, which have all keys",
    "meter/facts.py _kvm": "partition gives three parts",
    "meter/facts.py parse_qemu_version": BOUNDED,
    "meter/hyper_v.py _busy": "rows gives as many words as are asked for",
    "meter/windows_ledger.py _counted": "rows gives as many words as are asked for",
    "meter/hyper_v.py parse_hyper_v": "rows gives as many words as are asked for",
    "meter/ledger.py parse": BOUNDED,
    "meter/moment.py parse": BOUNDED,
    "meter/mounts.py parse": BOUNDED,
    "meter/mounts.py _plain": BOUNDED,
    "meter/pressure.py parse": BOUNDED,
    "meter/pressure.py _pressure": BOUNDED,
    "meter/pressure.py _frequency": BOUNDED,
    "meter/pressure.py _throttles": BOUNDED,
    "meter/vmstat.py parse": BOUNDED,
    "storage/features.py features": OURS,
    "testbed/storage/host_disk.py find_logged": OURS,
    "testbed/session/watching.py _of": "find_qemu gives two values",
    "testbed/network/standby.py parse": BOUNDED,
    "workload/durability/postgresql.py answer": "it runs in the checking guest, where each exception is an answer",
    "workload/inside.py work": "a record of its own function, named as one that runs commands on a machine",
}


def places() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        file = str(path.relative_to(ROOT))
        for one in raw_parses(path.read_text(encoding="utf-8")) if file not in TYPED else ():
            found.setdefault(f"{file} {one.function}", []).append(f"{file}:{one}")
    return found


def test_answers_of_machines_are_parsed_where_whatever_they_say_is_one_clear_line() -> None:
    found = places()
    wrong = [line for place, lines in found.items() if place not in ALLOWED for line in lines]
    assert not wrong, "use machine/answer.py:\n" + "\n".join(wrong)
    assert not ALLOWED.keys() - found.keys(), "these parse nothing any more"


def test_numbers_that_are_taken_from_patterns_have_a_bounded_number_of_digits() -> None:
    """`int` refuses five thousand digits, and a float of them is infinite."""
    for file in {place.partition(" ")[0] for place, why in ALLOWED.items() if why == BOUNDED}:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert not re.findall(r"(?:\\d|\[0-9a-f\])[+*]\)", source), file


PLANTED = {
    "a number": "int(machine.run('cat', 'x'))",
    "of a word": "float(machine.read_text('/proc/uptime').split()[0])",
    "in another base": "int(machine.read_text(path).strip(), 16)",
    "of a name": "said = machine.run('cat', 'x')\n    return int(said)",
    "of a part": "word, _, rest = machine.run('a').partition(' ')\n    return int(rest)",
    "in a walrus": "if (said := machine.try_run('a').stdout):\n        return float(said)",
    "in a loop": "for line in machine.run('a').splitlines():\n        yield int(line)",
    "in a comprehension": "return [int(line) for line in machine.run('a').split()]",
    "in a map": "return list(map(int, machine.run('a').split()))",
    "in a lambda": "return sorted(machine.run('a').split(), key=lambda word: int(word))",
    "as a key": "return sorted(machine.run('a').split(), key=int)",
    "through a function": "return inner(machine.run('a'))\ndef inner(text):\n    return int(text)",
    "by a keyword": "return inner(text=machine.run('a'))\ndef inner(*, text):\n    return int(text)",
    "from a function": "return int(inner(machine))\ndef inner(machine):\n    return machine.run('a').strip()",
    "in a dict": "found = {}\n    found['x'] = machine.run('a')\n    return int(found['x'])",
    "of the output": "return float(outcome.output)",
    "of the errors": "return int(outcome.stderr)",
    "of a pipe": "return int(process.stdout.readline())",
    "of a match": "m = re.search(r'(.*)', machine.run('a'))\n    return int(m[1])",
    "of a match in a match": "match machine.run('a').split():\n        case [one]:\n            return int(one)",
    "of a file in a with": "with hold(machine.run('a')) as one:\n        return int(one)",
    "JSON": "return json.loads(machine.run('ip', '-j', 'link'))",
    "JSON or nothing": "return json.loads(machine.run('ip', '-j') or '[]')",
    "JSON by a bare name": "from json import loads\n    return loads(machine.run('ip'))",
    "JSON of bytes": "return json.loads(process.stdout.read().decode())",
    "a typed model by itself": "return TypeAdapter(list).validate_json(machine.run('ip'))",
    "a key of a loose object": "state = object_or_none(machine.run('a'))\n    return state['file_system']",
    "two names": "a, b = machine.run('a').split()",
    "one of one": "(shown,) = rows(machine.run('a'))",
    "many and one": "name, *rest = machine.run('a').split()",
    "rows": "for a, b in (line.split() for line in machine.run('a').splitlines()):\n        yield a",
    "rows of a list": "rows = [one.split() for one in machine.run('a').splitlines()]\n    return [a for a, *_ in rows]",
    "the first word": "return machine.run('sha256sum', 'f').split()[0]",
    "the last line": "return machine.run('a').splitlines()[-1]",
    "pairs": "return dict(line.split() for line in machine.read_text(path).splitlines())",
    "a strict zip": "return dict(zip(NAMES, machine.run('a').split(), strict=True))",
    "bytes": "return bytes.fromhex(machine.run('a'))",
    "a time": "return datetime.fromisoformat(machine.run('a'))",
    "an address": "return ipaddress.ip_address(machine.run('a').strip())",
    "a structure": "return struct.unpack('<I', process.stdout.read(4))",
    "an attribute": "self.said = machine.run('a')\n    return int(self.said)",
    "an attribute elsewhere": "self.said = machine.run('a')\ndef other(self):\n    return int(self.said)",
    "a reader of a host": "return int(reader.try_run('a').stdout)",
    "a host by another name": "return int(parts.host.run('a', 'b'))",
}


@pytest.mark.parametrize("code", PLANTED.values(), ids=PLANTED)
def test_a_planted_parse_is_noticed(code: str) -> None:
    assert raw_parses(f"import json\ndef planted(machine, path, process, outcome):\n    {code}\n")


CLEAN = {
    "typed": "from vmtax.machine.answer import whole_of\n    return int(whole_of(machine, 'x', machine.run('a')))",
    "text alone": "return machine.run('a').strip() == '1'",
    "a part": "first, _, rest = machine.run('a').partition(' ')",
    "how many": "return float(len(machine.run('a').splitlines()))",
    "a local file": "return int(Path('/proc/x').read_text())",
    "another program": "return json.loads(subprocess.run(['a'], check=True))",
    "a field of a record": "return Outcome(machine.run('a'))[0]",
    "an argument": "return int(path)",
    "lines and the rest": "*lines, rest = process.stdout.read().split(b'\\n')",
}


@pytest.mark.parametrize("code", CLEAN.values(), ids=CLEAN)
def test_what_parses_no_answer_is_let_through(code: str) -> None:
    assert not raw_parses(f"import json\ndef planted(machine, path, process, outcome):\n    {code}\n")


def test_a_planted_file_turns_the_check_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "network").mkdir()
    (tmp_path / "network/new.py").write_text("def speed(host):\n    return int(host.read_text('/sys/x'))\n")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    with pytest.raises(AssertionError, match=r"network/new\.py:2: speed: int: int\(host\.read_text"):
        test_answers_of_machines_are_parsed_where_whatever_they_say_is_one_clear_line()
