"""Guests as public reports show them: each is read, nothing of it is lost in silence, and no secret is printed.

UPDATE_GOLDEN=1 writes the golden files anew; then read what changed in them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vmtax.cli.existing import plan_from, print_advice
from vmtax.existing.guest import HIDDEN, ExistingGuest, NoGuest
from vmtax.existing.libvirt_known import NEUTRAL
from vmtax.existing.plan import plan_of, remark_lines
from vmtax.existing.qemu_disks import bus_of
from vmtax.existing.qemu_line import NETWORK_DEVICES
from vmtax.existing.qemu_words import options_of
from vmtax.existing.source import PARSERS, decoded, recognised

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden/existing"
FILES = sorted(path for kind in PARSERS for path in (TESTS / "existing" / kind).iterdir())
WIDEST = 400  # characters of a line
SECRET = "hunter2"
every = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")


def read(file: Path) -> str:
    return decoded(file.read_bytes())


def parsed(text: str) -> ExistingGuest:
    return PARSERS[recognised(text)](text)


def lines_of(guest: ExistingGuest) -> list[str]:
    return remark_lines(plan_of(guest).remarks)


def of_kind(*kinds: str) -> Any:
    files = [file for file in FILES if file.parent.name in kinds]
    return pytest.mark.parametrize("file", files, ids=lambda file: file.stem)


def summary(guest: ExistingGuest) -> dict[str, Any]:
    plan = plan_of(guest)
    return {
        "name": guest.name,
        "vcpus": guest.vcpus,
        "memory_bytes": guest.memory_bytes,
        "disks": {
            f"{disk.name}{' (boot)' if disk.is_boot else ''}": "CD" if disk.is_cd else dict(disk.levels)
            for disk in guest.disks
        },
        "cards": {card.name: dict(card.levels) for card in guest.cards},
        "plan": dict(plan.levels),
        "remarks": remark_lines(plan.remarks),
    }


@pytest.mark.parametrize("kind", PARSERS)
def test_the_examples_are_read_as_before(kind: str) -> None:
    golden = GOLDEN / f"{kind}.json"
    now = {file.name: summary(parsed(read(file))) for file in FILES if file.parent.name == kind}
    text = json.dumps(now, indent=1, ensure_ascii=False) + "\n"
    if "UPDATE_GOLDEN" in os.environ:
        golden.write_text(text, encoding="utf-8")
    before = json.loads(golden.read_text(encoding="utf-8"))
    assert sorted(now) == sorted(before)
    for name, guest in now.items():
        assert guest == before[name], name


@every
@pytest.mark.varied(30)
def test_an_example_is_of_its_kind_and_short_enough_to_read(file: Path) -> None:
    text = read(file)
    assert recognised(text) == file.parent.name
    guest = parsed(text)
    assert len({disk.name for disk in guest.disks}) == len(guest.disks), "every disk once"
    plan = plan_of(guest)
    assert all(len(line) <= WIDEST for line in plan.text.splitlines())
    assert len(set(plan.remarks)) == len(plan.remarks)


def test_every_example_has_its_source() -> None:
    sources = (TESTS / "existing/SOURCES.md").read_text()
    assert re.findall(r"^\| (\w+/\S+) \|", sources, re.MULTILINE) == [f"{f.parent.name}/{f.name}" for f in FILES]
    for kind, least in (("libvirt", 40), ("proxmox", 30), ("qemu", 30)):
        assert sum(file.parent.name == kind for file in FILES) >= least


# Nothing is lost in silence: what nobody knows is put into every place of every example.


def domain_of(file: Path) -> ET.Element:
    body = re.search(r"<domain[\s>].*</domain>", read(file), re.DOTALL)
    assert body is not None
    return ET.fromstring(body[0])


def local(element: ET.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def elements(parent: ET.Element) -> Iterator[ET.Element]:
    """Those that are not neutral as a whole."""
    yield parent
    for child in parent:
        if local(child) not in NEUTRAL:
            yield from elements(child)


def xml_of(domain: ET.Element) -> str:
    return ET.tostring(domain, encoding="unicode")


@of_kind("libvirt")
@pytest.mark.varied(10)
def test_every_unknown_element_and_attribute_is_listed(file: Path) -> None:
    domain = domain_of(file)
    expected = []
    cds = {driver for disk in domain.iter("disk") if disk.get("device") in ("cdrom", "floppy") for driver in disk}
    for number, element in enumerate(list(elements(domain))):
        expected.append(f"new-thing-{number:04}")
        element.append(ET.Element(expected[-1], {"a": "1"}))
        if local(element) == "driver" and element not in cds:
            expected.append(f"new-attribute-{number:04}")
            element.set(expected[-1], "1")
    found = "\n".join(lines_of(parsed(xml_of(domain))))
    assert len(expected) > 10
    assert [name for name in expected if name not in found] == []


def conf_of(file: Path, change: Callable[[str, str], str], more: str = "") -> str:
    """A configuration of Proxmox with its values changed, and further lines before its snapshots."""
    text = read(file)
    if file.suffix == ".json":
        value = json.loads(text)
        data = value.get("data", value)
        data.update({key: change(key, setting) for key, setting in data.items() if isinstance(setting, str)})
        data.update(line.split(": ", 1) for line in more.splitlines())
        return json.dumps(value)
    now, section, rest = re.split(r"(?m)(^\[|\Z)", text, maxsplit=1)
    changed = [
        re.sub(r"^(\s*)([a-z][\w-]*): (.*)$", lambda match: f"{match[1]}{match[2]}: {change(match[2], match[3])}", line)
        for line in now.splitlines()
    ]
    return "\n".join([*changed, *more.splitlines(), section + rest])


DRIVE_OR_CARD = re.compile(r"(scsi|virtio|ide|sata|net)\d+")


@of_kind("proxmox")
@pytest.mark.varied(10)
def test_every_unknown_key_and_property_is_listed(file: Path) -> None:
    expected = ["newthing (7)", "numa9 (7)"]

    def change(key: str, value: str) -> str:
        if DRIVE_OR_CARD.fullmatch(key) and "media=cdrom" not in value and not value.startswith("none"):
            expected.append(f"{key}: newproperty (7)")
            return f"{value},newproperty=7"
        if key in ("cpu", "machine"):
            expected.append(f"{key}: newproperty (7)")
            return f"{value},newproperty=7"
        return value

    found = "\n".join(lines_of(parsed(conf_of(file, change, "newthing: 7\nnuma9: 7"))))
    assert [name for name in expected if name not in found] == []


def line_of(file: Path, change: Callable[[str, str], str], *more: str) -> str:
    """A command line as /proc has it, with its values changed and further words."""
    line = options_of(read(file))
    words = [f"qemu-system-{line.arch or 'x86_64'}"]
    for name, value in line.options:
        changed = change(name, value)
        words += [f"-{name}", *([changed] if changed else [])]
    return "\0".join([*words, *more, ""])


def with_setting(value: str, name: str, setting: str) -> str:
    if value.startswith("{"):
        return json.dumps({**json.loads(value), name: setting})
    return f"{value},{name}={setting}"


@of_kind("qemu")
@pytest.mark.varied(10)
def test_every_unknown_option_and_property_is_listed(file: Path) -> None:
    expected = ["-newoption (newvalue)", "-device (newdevice,a=7)", "-object (newobject,a=7)"]

    def change(option: str, value: str) -> str:
        driver = re.search(r'^(?:driver=)?([a-z][\w-]*)|"driver":"([\w-]+)"', value)
        kind = (driver[1] or driver[2]) if driver else ""
        is_measured = bus_of(kind) or kind.startswith((*NETWORK_DEVICES, "virtio-scsi", "virtio-balloon"))
        is_device = option == "device" and is_measured
        is_drive = option == "drive" and not re.search(r"pflash|media=cdrom", value)
        if not (is_device or is_drive or option in ("netdev", "machine", "cpu")):
            return value
        expected.append(f"x-new-{len(expected)}")
        return with_setting(value, expected[-1], "7")

    more = ("-newoption", "newvalue", "-device", "newdevice,a=7", "-object", "newobject,a=7")
    guest = parsed(line_of(file, change, *more))
    found = "\n".join(lines_of(guest))
    cds = {disk.name for disk in guest.disks if disk.is_cd}  # a drive for CDs may be known by its device only
    missing = [name for name in expected if name not in found]
    assert len(missing) <= len(cds), missing


# No secret is printed, wherever it stands.


def xml_with_secrets(file: Path) -> str:
    domain = domain_of(file)
    for element in list(domain.iter()):
        for name in ("passwd", "password", "api-key", "token", "auth"):
            element.set(name, SECRET)
        if local(element) == "source":
            for name in ("file", "dev", "name", "path"):
                if name in element.attrib:
                    element.set(name, f"https://user:{SECRET}@192.0.2.1/a:key={SECRET}")
        if local(element) == "arg":
            element.set("value", f"secret,id=a,data={SECRET},password={SECRET}")
        ET.SubElement(element, "secret").text = SECRET
        ET.SubElement(element, "entry", {"name": "password", "value": SECRET}).text = SECRET
    return xml_of(domain)


def conf_with_secrets(file: Path) -> str:
    as_they_are = (
        "name",
        "cores",
        "sockets",
        "memory",
        "vcpus",
        "smp",
        "numa",
        "kvm",
        "balloon",
        "hugepages",
        "arch",
        "template",
    )

    def change(key: str, value: str) -> str:
        if DRIVE_OR_CARD.fullmatch(key):
            value = re.sub(r"^[^,=]+:[^,]*", f"https://user:{SECRET}@192.0.2.1/a", value)
        return value if key in as_they_are else f"{value},password={SECRET},api-key={SECRET}"

    more = (
        f"new_password: {SECRET}\napi_token: {SECRET}\ncipassword: {SECRET}\nsshkeys: {SECRET}\n"
        f"args: -vnc :1,password={SECRET} -object secret,id=a,data={SECRET} -fw_cfg name=a,string={SECRET}"
    )
    return conf_of(file, change, more)


def line_with_secrets(file: Path) -> str:
    def change(option: str, value: str) -> str:
        if option in ("m", "smp", "accel", "cpu", "append") or not value:
            return value
        value = re.sub(r"file=[^,]+", f"file=https://user:{SECRET}@192.0.2.1/a:key={SECRET}", value)
        return with_setting(with_setting(value, "password", SECRET), "x-token", SECRET)

    more = ("-object", f"secret,id=s,data={SECRET}", "-newoption", f"password={SECRET}", "-drive")
    return line_of(file, change, *more, f"if=none,id=z,file=rbd:a/b:key={SECRET}:auth={SECRET}")


WITH_SECRETS = {"libvirt": xml_with_secrets, "proxmox": conf_with_secrets, "qemu": line_with_secrets}


@every
@pytest.mark.varied(8)
def test_no_secret_of_an_example_is_printed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    guest = tmp_path / "guest"
    text = WITH_SECRETS[file.parent.name](file)
    assert text.count(SECRET) > 5
    guest.write_text(text)
    for json_too in (False, True):
        plan_from(str(guest), "", None, None, json=json_too)
        print_advice(str(guest), None, json=json_too)
    printed = capsys.readouterr().out
    assert SECRET not in printed, [line for line in printed.splitlines() if SECRET in line]
    assert HIDDEN in printed and len(printed) > 500


# Cut off anywhere, a file is read as far as it goes or refused in one line.


@every
@pytest.mark.varied(10)
def test_a_cut_example_is_read_or_refused_in_a_line(file: Path) -> None:
    content = file.read_bytes()
    whole = [content[: len(content) * part // 21] for part in range(1, 21)]
    guests, refused = [], 0
    for part in whole:
        try:
            guests.append(parsed(decoded(part)))
        except NoGuest as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < WIDEST
    for guest in guests[-1:]:
        assert plan_of(guest).text
    if file.suffix in (".xml", ".json"):
        assert refused >= 15, "what is not whole is no XML"


# However a command line is printed, it describes the same guest.


def words_of(file: Path) -> list[list[str]]:
    """The program, then each option with its value."""
    line = options_of(read(file))
    options = [[f"-{name}", value] if value else [f"-{name}"] for name, value in line.options]
    return [["/usr/bin/qemu-system-x86_64"], *options]


def wrapped(text: str, columns: int, *, has_spaces: bool) -> str:
    """What a terminal makes of it; a space at the end of a line may be lost when it is copied."""
    lines = [text[begin : begin + columns] for begin in range(0, len(text), columns)]
    return "\n".join(line if has_spaces else line.rstrip() for line in lines)


def printed_ways(options: list[list[str]]) -> dict[str, str]:
    flat = [word for option in options for word in option]
    plain = " ".join(flat)
    quoted = [shlex.join(option) for option in options]
    row = f"root        1234  7.5 12.9 9442808 8466720 ?     Sl   Jan01 1234:56 {plain}"
    return {
        "shell": " ".join(quoted),
        "log of libvirt": "LC_ALL=C \\\nPATH=/usr/bin \\\n"
        + " \\\n".join(quoted)
        + "\n2026-01-01T00:00:00.0Z qemu: warning",
        "unit of systemd": f"[Service]\nExecStart={' '.join(quoted)}\n",
        "typed": "root@host:~# " + " \\\n> ".join(map(shlex.quote, flat)),
        "quotation": "\n".join(f"> {line}" for line in " \\\n".join(quoted).splitlines()),
        "script": "\n".join((f'CMD="{quoted[0]}"', *(f'CMD+=" {option}"' for option in quoted[1:]), "$CMD\n")),
        "error of Proxmox": f"TASK ERROR: start failed: command '{plain}' failed: exit code 1",
        "ps": f"$ ps aux | grep kvm\n{row}\nroot        1300  0.0  0.0   6332  2048 pts/0  S+ 00:00  0:00 grep kvm\n$ ",
        **{
            f"{columns} columns{'' if has_spaces else ', copied'}": wrapped(row, columns, has_spaces=has_spaces)
            for columns in (80, 97, 132, 203)
            for has_spaces in (True, False)
        },
    }


@of_kind("qemu")
@pytest.mark.varied(10)
def test_a_command_line_is_the_same_however_it_is_printed(file: Path) -> None:
    options = words_of(file)
    expected = parsed("\0".join(word for option in options for word in option))
    wrong = {}
    for way, text in printed_ways(options).items():
        try:
            now = parsed(decoded(text.encode()))
        except NoGuest as error:
            wrong[way] = str(error)
        else:
            if now != expected:
                wrong[way] = str(now)
    assert wrong == {}


REFUSED = {
    "a domain of Xen": ("<domain type='xen'><name>a</name><memory>1</memory></domain>", "a guest of Xen"),
    "a container of libvirt": ("<domain type='lxc' id='1'><name>a</name><memory>1</memory></domain>", "a guest of LXC"),
    "a guest of ARM": ("<domain type='kvm'><os><type arch='aarch64'>hvm</type></os></domain>", "a guest for aarch64"),
    "a network": ("<network><name>default</name><bridge name='virbr0'/></network>", "its element is <network>"),
    "a pool": ("<?xml version='1.0'?><pool type='dir'><name>a</name></pool>", "its element is <pool>"),
    "capabilities": ("<domainCapabilities><path>/usr/bin/qemu</path></domainCapabilities>", "<domainCapabilities>"),
    "a machine of VirtualBox": ('<?xml version="1.0"?><VirtualBox version="1.19"></VirtualBox>', "<VirtualBox>"),
    "an OVF": ('<?xml version="1.0"?><Envelope ovf:version="1"></Envelope>', "its element is <Envelope>"),
    "a web page": ("<!DOCTYPE html><html><body>virsh</body></html>", "its element is <html>"),
    "a container of Proxmox": (
        "arch: amd64\ncores: 2\nhostname: ct\nmemory: 512\nnet0: name=eth0,bridge=vmbr0,ip=dhcp\nrootfs: local:1/a\n",
        "a container (pct)",
    ),
    "a template": ("cores: 2\nmemory: 2048\nscsi0: local-lvm:base-9-disk-0\ntemplate: 1\n", "a template"),
    "a template in JSON": ('{"data": {"cores": 2, "memory": 2048, "template": true, "scsi0": "a:b"}}', "a template"),
    "a list in JSON": ('[{"key": "cores", "value": 2}]', "is no description of a guest"),
    "a file of VMware": ('.encoding = "UTF-8"\nmemsize = "4096"\nnumvcpus = "2"\n', "is no description of a guest"),
    "a list of virsh": (
        " Id   Name   State\n------------------\n 1    web1   running\n",
        "is no description of a guest",
    ),
    "a list of qm": (
        "      VMID NAME   STATUS  MEM(MB)\n       100 web    running 2048\n",
        "is no description of a guest",
    ),
    "a program of another name": ("/usr/bin/firefox -P me", "is no description of a guest"),
    "QEMU for ARM": ("/usr/bin/qemu-system-aarch64 -M virt -m 1G -cpu max", "a guest for aarch64"),
    "QEMU with Xen": ("/usr/lib/xen/bin/qemu-system-i386 -xen-domid 1 -M xenfv -m 512", "a guest of Xen"),
    "QEMU with variables": ("qemu-system-x86_64 -enable-kvm -m $RAM -smp $CPUS", "must be a size"),
    "a tool of QEMU": ("qemu-img create -f qcow2 a.qcow2 10G", "is no description of a guest"),
    "bytes": ("\x00\x01\x02\x7fELF\x00", "is no description of a guest"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_guest_of_kvm_is_refused_in_a_line(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(NoGuest) as caught:
        plan_of(parsed(text))
    assert why in str(caught.value) and "\n" not in str(caught.value)
