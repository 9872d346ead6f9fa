"""The programs of tests/proxmox: arguments are the node's directory, the program's name, and its own arguments.

Standard library only. What Proxmox dies of, it prints to stderr, and ends with 255, or 2 for pvesh.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NODE = "pve1"


class Died(Exception):
    """What Proxmox's programs die of."""


class Vm:
    """One VM of the node."""

    def __init__(self, directory: Path, vmid: str) -> None:
        self.directory, self.vmid = directory, vmid
        self.file = directory / "etc" / f"{vmid}.conf"
        if not self.file.exists():
            raise Died(f"Configuration file 'nodes/{NODE}/qemu-server/{vmid}.conf' does not exist")
        rows = [line.partition(": ") for line in self.file.read_text().partition("\n[")[0].splitlines()]
        self.config = {key: value for key, _, value in rows if key}

    def run(self, kind: str) -> Path:
        return self.directory / "run" / f"{self.vmid}.{kind}"

    @property
    def pid(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            pid = int(self.run("pid").read_text())
            if str(self.run("pid")).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
        return None

    def volume(self, line: str) -> str:
        return str(self.directory / "images" / line.split(",")[0].partition(":")[2])

    def qmp(self, execute: str, **arguments: object) -> Any:
        """One command to QEMU, on a connection of its own."""
        if self.pid is None:
            raise Died(f"VM {self.vmid} not running")
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(30)
            link.connect(str(self.run("qmp")))
            stream = link.makefile("rwb")
            stream.readline()
            for command in ({"execute": "qmp_capabilities"}, {"execute": execute, "arguments": arguments}):
                stream.write(json.dumps(command).encode() + b"\n")
                stream.flush()
                while "return" not in (answer := json.loads(stream.readline())) and "error" not in answer:
                    pass
        if "error" in answer:
            raise Died(f"VM {self.vmid} qmp command '{execute}' failed - {answer['error']['desc']}")
        return answer["return"]

    def agent(self, execute: str, timeout: float = 10.0, **arguments: object) -> Any:
        """One command to the guest agent, after the handshake that empties its channel."""
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(timeout)
                link.connect(str(self.run("qga")))
                stream = link.makefile("rwb")
                sync = {"execute": "guest-sync-delimited", "arguments": {"id": os.getpid()}}
                stream.write(b"\xff" + json.dumps(sync).encode() + b"\n")
                stream.flush()
                while True:
                    line = stream.readline().rpartition(b"\xff")[2]
                    with contextlib.suppress(ValueError):
                        if json.loads(line).get("return") == os.getpid():
                            break
                command = {"execute": execute, **({"arguments": arguments} if arguments else {})}
                stream.write(json.dumps(command).encode() + b"\n")
                stream.flush()
                answer = json.loads(stream.readline())
        except (OSError, ValueError):
            raise Died(f"VM {self.vmid} qga command '{execute}' failed - got timeout") from None
        if "error" in answer:
            raise Died(f"Agent error: {answer['error']['desc']}")
        return answer["return"]

    def agent_command(self, execute: str, **arguments: object) -> Any:
        if "agent" not in self.config:
            raise Died("No QEMU guest agent configured")
        if self.pid is None:
            raise Died(f"VM {self.vmid} is not running")
        try:
            self.agent("guest-ping", timeout=3.0)
        except Died:
            raise Died("QEMU guest agent is not running") from None
        return self.agent(execute, **arguments)

    def status(self) -> dict[str, Any]:
        pid, lines = self.pid, self.config
        found: dict[str, Any] = {
            "vmid": int(self.vmid),
            "status": "running" if pid else "stopped",
            "name": lines.get("name", f"VM {self.vmid}"),
            "cpus": int(lines.get("sockets", "1")) * int(lines.get("cores", "1")),
            "maxmem": int(lines.get("memory", "512")) * 2**20,
            **dict.fromkeys(("cpu", "disk", "mem", "memhost", "netin", "netout", "uptime"), 0),
            "maxdisk": 2 * 2**30,
        }
        if "vcpus" in lines:
            found["cpus"] = lines["vcpus"]  # a string, as Perl keeps it
        found |= {name: lines[name] for name in ("lock", "tags") if name in lines}
        if "template" in lines:
            found["template"] = 1
        if pid:
            found["pid"] = pid
            found["qmpstatus"] = self.qmp("query-status")["status"]
            version = self.qmp("query-version")["qemu"]
            found["running-qemu"] = "{major}.{minor}.{micro}".format(**version)
            balloon = self.qmp("query-balloon")["actual"]
            found |= {"balloon": balloon, "ballooninfo": {"actual": balloon, "max_mem": balloon}}
        else:
            found["qmpstatus"] = "stopped"
        return found

    def command(self) -> list[str]:
        """QEMU's command line, as Proxmox makes it for machines before version 10."""
        lines, run = self.config, self.run
        controller = lines.get("scsihw", "lsi")
        words = [str(self.directory / "kvm"), "-name", f"{lines['name']},debug-threads=on"]  # only Proxmox's knows -id
        words += ["-no-shutdown", "-daemonize"]
        words += ["-chardev", f"socket,id=qmp,path={run('qmp')},server=on,wait=off", "-mon", "chardev=qmp,mode=control"]
        words += ["-pidfile", str(run("pid")), "-smbios", f"type=1,{lines['smbios1']}"]
        words += ["-smp", f"{lines['cores']},sockets=1,cores={lines['cores']},maxcpus={lines['cores']}", "-nodefaults"]
        words += ["-display", "none", "-cpu", lines["cpu"], "-m", lines["memory"]]
        words += ["-device", "pci-bridge,id=pci.1,chassis_nr=1,bus=pci.0,addr=0x1e"]
        words += ["-device", "pci-bridge,id=pci.2,chassis_nr=2,bus=pci.0,addr=0x1f"]
        words += ["-device", "piix3-usb-uhci,id=uhci,bus=pci.0,addr=0x1.0x2"]
        words += ["-chardev", f"file,id=serial0,path={run('console')}", "-device", "isa-serial,chardev=serial0"]
        words += ["-chardev", f"socket,path={run('qga')},server=on,wait=off,id=qga0"]
        words += ["-device", "virtio-serial,id=qga0,bus=pci.0,addr=0x8"]
        words += ["-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"]
        words += ["-device", "virtio-balloon-pci,id=balloon0,bus=pci.0,addr=0x3"]
        for name, line in lines.items():
            if re.fullmatch(r"(scsi|virtio|ide|sata)\d+", name) and "media=cdrom" not in line:
                words += self._disk(name, line, controller)
        words += ["-machine", f"type={lines.get('machine', 'pc')},accel=tcg"]
        return [*words, *shlex.split(lines.get("args", ""))]

    def _disk(self, name: str, line: str, controller: str) -> list[str]:
        options = dict(part.partition("=")[::2] for part in line.split(",")[1:])
        unmaps = options.get("discard") == "on"
        zeroes = "off" if options.get("detect_zeroes") == "0" else "unmap" if unmaps else "on"
        drive = f"file={self.volume(line)},if=none,id=drive-{name}{',discard=on' if unmaps else ''},format=raw"
        drive += f",cache={options.get('cache', 'none')},aio={options.get('aio', 'threads')},detect-zeroes={zeroes}"
        thread = f",iothread=iothread-{name}" if options.get("iothread") == "1" else ""
        words = ["-object", f"iothread,id=iothread-{name}"] if thread else []
        words += ["-drive", drive]
        if name.startswith("scsi"):
            single = controller == "virtio-scsi-single"
            model, hardware = ("virtio-scsi-pci", "virtioscsi0" if single else "scsihw0")
            model = model if controller.startswith("virtio-scsi") else controller
            extra = thread if single else ""
            words += ["-device", f"{model},id={hardware},bus=pci.0,addr=0x5{extra}"]
            place = f"scsi-hd,bus={hardware}.0,scsi-id=0"
            place += ",channel=0,lun=0" if model.startswith("virtio") else ""
        elif name.startswith("virtio"):
            place = f"virtio-blk-pci,bus=pci.0,addr=0xa{thread}"
        else:
            place = "ide-hd,bus=ide.0,unit=0"
        return [*words, "-device", f"{place},drive=drive-{name},id={name},bootindex=100"]


def pretty(value: object) -> str:
    """As Perl's JSON prints it."""
    text = json.dumps(value, indent=3, sort_keys=True, ensure_ascii=False)
    return re.sub(r'^(\s*"[^"]*"):', r"\1 :", text, flags=re.MULTILINE)


def recursive(prefix: str, value: object, key: str | None = None) -> None:
    """As `qm status --verbose` prints it."""
    if isinstance(value, dict):
        if key is not None:
            print(f"{prefix}{key}:")
        for name in sorted(value):
            recursive(f"\t{prefix}", value[name], name)
    else:
        print(f"{prefix}{key}: {value}")


def qm(directory: Path, words: list[str]) -> None:
    verb, *rest = words
    if verb == "list":
        print(f"{'VMID':>10} {'NAME':<20} {'STATUS':<10} {'MEM(MB)':<10} {'BOOTDISK(GB)':>12} PID")
        for file in sorted((directory / "etc").glob("*.conf")):
            each = Vm(directory, file.stem).status()
            memory, pid = each["maxmem"] >> 20, each.get("pid", 0)
            print(f"{file.stem:>10} {each['name']:<20} {each['qmpstatus']:<10} {memory:<10} {2:>12.2f} {pid}")
    elif verb == "guest":
        guest(directory, *rest)
    else:
        vm = Vm(directory, rest[0])
        if verb == "config":
            for key in sorted(vm.config):
                print(f"{key}: {vm.config[key]}")
        elif verb == "status":
            status = vm.status()
            if "--verbose" in rest:
                for key in sorted(status.keys() - {"cpu"}):
                    recursive("", status[key], key)
            else:
                print(f"status: {status['qmpstatus']}")
        elif verb == "start":
            subprocess.run(vm.command(), check=True, stdin=subprocess.DEVNULL)
        elif verb == "stop":
            if (pid := vm.pid) is not None:
                os.kill(pid, signal.SIGKILL)
                while vm.pid is not None:
                    time.sleep(0.05)
        elif verb in ("suspend", "resume"):
            vm.qmp("stop" if verb == "suspend" else "cont")
        elif verb == "set":
            change(vm, rest[1:])
        else:
            raise Died(f"ERROR: unknown command 'qm {verb}'")


def change(vm: Vm, words: list[str]) -> None:
    """`qm set VMID --KEY VALUE`: takes effect when the VM is started."""
    for key, value in zip(words[::2], words[1::2], strict=True):
        vm.config[key.removeprefix("--")] = value
        print(f"update VM {vm.vmid}: -{key.removeprefix('--')} {value}")
    vm.file.write_text("".join(f"{key}: {vm.config[key]}\n" for key in sorted(vm.config)))


def guest(directory: Path, verb: str, vmid: str, *words: str) -> None:
    vm = Vm(directory, vmid)
    if verb == "exec":
        before, _, argv = "\0".join(words).partition("\0--\0" if words[0] != "--" else "--\0")
        given = before.split("\0") if before else []
        options = dict(zip(given[::2], given[1::2], strict=True))
        arguments: dict[str, object] = {"capture-output": True}
        arguments["path"], *rest = argv.split("\0")
        arguments["arg"] = rest
        if options.get("--pass-stdin") == "1":
            arguments["input-data"] = base64.b64encode(sys.stdin.buffer.read()).decode()
        result = vm.agent_command("guest-exec", **arguments)
        if options.get("--synchronous", "1") == "1":
            result = awaited(vm, result, float(options.get("--timeout", "30")))
        print(pretty(result))
    elif verb == "exec-status":
        print(pretty(exec_status(vm, int(words[0]))))
    elif verb == "cmd":
        result = vm.agent_command(f"guest-{words[0]}")
        if result != {}:
            print(pretty(result) if isinstance(result, dict | list) else result)


def awaited(vm: Vm, started: dict[str, Any], timeout: float) -> dict[str, Any]:
    began = time.monotonic()
    while timeout == 0 or time.monotonic() - began < timeout:
        said = exec_status(vm, started["pid"])
        if said["exited"]:
            return said
        time.sleep(1)
    print("timeout reached, returning pid", file=sys.stderr)
    return started


def exec_status(vm: Vm, pid: int) -> dict[str, Any]:
    said: dict[str, Any] = vm.agent_command("guest-exec-status", pid=pid)
    for name in ("out-data", "err-data"):
        if name in said:
            said[name] = base64.b64decode(said[name]).decode(errors="replace")
    return {name: int(value) if isinstance(value, bool) else value for name, value in said.items()}


def pvesh(directory: Path, words: list[str]) -> None:
    verb, path, *rest = words
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    match = re.fullmatch(r"/nodes/([^/]+)/qemu/(\d+)/(.+)", path)
    if match is None or match[1] not in (NODE, "localhost"):
        raise Died(f"no '{verb}' handler for '{path}'")
    vm, what = Vm(directory, match[2]), (verb, match[3])
    if what == ("get", "status/current"):
        answer: object = {**vm.status(), "ha": {"managed": 0}, **({"agent": 1} if "agent" in vm.config else {})}
    elif what == ("get", "config"):
        answer = {**vm.config, "digest": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}
    elif what == ("create", "monitor"):
        answer = vm.qmp("human-monitor-command", **{"command-line": options["--command"]})
    else:
        raise Died(f"no '{verb}' handler for '{path}'")
    print(json.dumps(answer, separators=(",", ":")) if options.get("--output-format") == "json" else answer)


def pvesm(directory: Path, words: list[str]) -> None:
    if words[0] != "path" or not words[1].startswith("local:"):
        raise Died(f"storage '{words[-1].partition(':')[0]}' does not exist")
    print(directory / "images" / words[1].partition(":")[2])


if __name__ == "__main__":
    where, program, *given = sys.argv[1:]
    try:
        {"qm": qm, "pvesh": pvesh, "pvesm": pvesm}[program](Path(where), given)
    except Died as error:
        print(error, file=sys.stderr)
        sys.exit(2 if program == "pvesh" else 255)
