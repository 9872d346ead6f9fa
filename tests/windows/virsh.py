"""A virsh that knows one running domain, win1, whose guest agent is at the socket that the first argument names.

Standard library only. What it prints has libvirt's shapes; what the agent refuses is said in libvirt's words.
"""

import json
import socket
import sys

UUID = "5b0d7c3e-5e0a-4a4e-9d1c-0a6f7a1c2d3e"
INFO = f"""\
Id:             1
Name:           win1
UUID:           {UUID}
OS Type:        hvm
State:          running
CPU(s):         1
CPU time:       19.5s
Max memory:     2097152 KiB
Used memory:    2097152 KiB
Persistent:     yes
"""
XML = f"""\
<domain type='kvm' id='1'>
  <name>win1</name>
  <uuid>{UUID}</uuid>
  <devices>
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>
    </channel>
  </devices>
</domain>
"""


def fail(words: str) -> None:
    sys.exit(f"error: {words}")


def asked(path: str, request: str) -> dict[str, object]:
    """The agent's answer."""
    name = json.loads(request)["execute"]
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(path)
            link.sendall(request.encode() + b"\n")
            line = link.makefile("rb").readline()
    except OSError:
        line = b""
    if not line:
        fail("Guest agent is not responding: Guest agent not available for now")
    answer: dict[str, object] = json.loads(line)
    if (error := answer.get("error")) is not None:
        assert isinstance(error, dict)
        fail(f"internal error: unable to execute QEMU agent command '{name}': {error['desc']}")
    return answer


def main(path: str, *words: str) -> None:
    options = ("--quiet", "--connect", "--domain")
    verb, *rest = [word for before, word in zip(("", *words), words, strict=False) if not {before, word} & {*options}]
    if verb == "uri":
        print("qemu:///system")
    elif verb == "list":
        print("win1")
    elif verb == "dominfo":
        print(INFO)
    elif verb == "domstate":
        print("running")
    elif verb == "dumpxml":
        print(XML)
    elif verb == "guestinfo":
        system = asked(path, '{"execute":"guest-get-osinfo"}')["return"]
        assert isinstance(system, dict)
        for name, value in system.items():
            print(f"os.{name:<20}: {value}")
    elif verb == "qemu-agent-command":
        print(json.dumps(asked(path, rest[rest.index("--cmd") + 1]), separators=(",", ":")))
    elif verb not in ("domjobinfo", "blockjob"):
        fail(f"unknown command: '{verb}'")


if __name__ == "__main__":
    main(*sys.argv[1:])
