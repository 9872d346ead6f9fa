"""SMB: copy a file from and to a private smbd at the peer, through the guest kernel's cifs, and check its digest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vmtax.core.layers import GUESTS
from vmtax.core.machines import Machine
from vmtax.core.quantities import Quantity
from vmtax.core.records import Measurement, Metric
from vmtax.core.units import parse_bytes
from vmtax.workload.base import Command, Measure, Parameters
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import Site, link_of

PORTS_APART = 2000  # added to iperf3's port of a machine, for smbd's
SLOW = 100e6  # bytes per second, for estimates
# Constant text. $1: address, $2: port, $3: bytes of the file. The file is in memory, and nobody else can reach the
# port.
SERVER = """
mkdir -p /tmp/smb/share /tmp/smb/state || exit
cat > /tmp/smb/smb.conf <<END
[global]
server role = standalone server
server min protocol = SMB3
interfaces = $1
bind interfaces only = yes
smb ports = $2
disable netbios = yes
load printers = no
printcap name = /dev/null
map to guest = bad user
guest account = root
private dir = /tmp/smb/state
lock directory = /tmp/smb/state
state directory = /tmp/smb/state
cache directory = /tmp/smb/state
pid directory = /tmp/smb/state
ncalrpc dir = /tmp/smb/state/rpc
[share]
path = /tmp/smb/share
guest ok = yes
guest only = yes
read only = no
END
head -c "$3" /dev/urandom > /tmp/smb/share/in && sha256sum < /tmp/smb/share/in > /tmp/smb/share/digest || exit
exec smbd --foreground --no-process-group --debug-stdout --configfile=/tmp/smb/smb.conf
"""
# Constant text. $1: address, $2: port, $3: bytes, $4: case. A read file stays in the page cache, from which its digest
# is calculated. A written file is read back from the server over another mount, which has none of it cached.
CLIENT = """
set -e
export LC_ALL=C
mkdir -p /run/smb
enter() {
    tries=0
    until mount -t cifs "//$1/share" /run/smb -o "ip=$1,port=$2,vers=3.1.1,username=guest,password=,sec=ntlmssp"; do
        tries=$((tries + 1))
        if test $tries -gt 30; then echo "smbd at $1 port $2 was not reached in 30 s" >&2; exit 1; fi
        sleep 1
    done
}
source() { left=$1; while test $left -gt 0; do head -c $left /run/block; left=$((left - 16777216)); done; }
enter "$1" "$2"
trap 'umount /run/smb' EXIT
if test "$4" = in; then
    dd if=/run/smb/in of=/dev/null bs=1M
    echo "wanted $(cat /run/smb/digest)"
    echo "copied $(sha256sum < /run/smb/in)"
else
    head -c 16777216 /dev/urandom > /run/block
    source "$3" | dd of=/run/smb/out bs=1M iflag=fullblock conv=fsync
    umount /run/smb
    enter "$1" "$2"
    echo "wanted $(source "$3" | sha256sum)"
    echo "copied $(sha256sum < /run/smb/out)"
    rm /run/smb/out /run/block
fi
"""
Size = Annotated[str, Quantity(parse_bytes, "16MiB", "64GiB", "64MiB", as_text=True)]


class SmbParameters(Parameters):
    cases: tuple[Literal["in", "out"], ...] = Field(
        ("in", "out"), min_length=1, description="what to measure: a copy into the guest, or out of it"
    )
    size: Size = Field(
        "64MiB", description="size of the file; the host keeps two such files in its memory for each guest"
    )


class Smb(Command[SmbParameters]):
    """Not run on the host: its kernel may lack cifs, and the share would be mounted among the host's own files."""

    name = "smb"
    describe = "SMB: a file copied from and to an smbd at the peer and compared; bytes per second (cifs, dd)"
    tool = "dd"
    doubts = (r"^dd: |warning: partial read",)
    title = "SMB"
    packages = ("samba",)
    headline = "smb.in.bytes_per_second"
    layers = frozenset(GUESTS)
    networked = True
    takes_bridge = "smb"
    server_capabilities = ("CAP_SETGID", "CAP_SETUID")  # smbd switches to the user who logs in
    measures: ClassVar = {
        "bytes_per_second": Measure(
            "bytes copied in a second; a copy out of the guest ends when smbd has all of them", "bandwidth"
        )
    }
    parameters_type = SmbParameters

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        return f"{'inbound' if metric.case == 'in' else 'outbound'} SMB copies"

    @classmethod
    def spoken(cls, metric: Metric) -> str:
        return f"SMB copies, {'inbound' if metric.case == 'in' else 'outbound'}"

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(map(_metric, self.parameters.cases))

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        link = link_of(site)
        return link.machine, link.prefix

    def servers(self, address: str, port: int) -> Sequence[Sequence[str]]:
        return (("sh", "-c", SERVER, "sh", address, str(port + PORTS_APART), str(self._bytes)),)

    def command(self, site: Site, case: str) -> Sequence[str]:
        link = link_of(site)
        return ("sh", "-c", CLIENT, "sh", link.address, str(link.port + PORTS_APART), str(self._bytes), case)

    def seconds(self, case: str) -> float:
        return 1 + 3 * self._bytes / SLOW

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        seconds = self.own_seconds(case, output)
        digests = [re.search(rf"^{word} ([0-9a-f]{{64}})\b", output, re.ASCII | re.M) for word in ("wanted", "copied")]
        match digests:
            case [wanted, copied] if wanted and copied and seconds:
                if wanted[1] != copied[1]:
                    raise BadOutput(f"the copy has the sha256 {copied[1][:16]}..., not {wanted[1][:16]}...")
                return (Measurement(_metric(case), self._bytes / seconds),)
        raise BadOutput(f"no '{self._bytes} bytes copied' of dd with two digests after it")

    def counted(self, case: str, output: str) -> None:
        """Unknown: before and after the copy, the file is made, read again and compared."""

    def own_seconds(self, case: str, output: str) -> float | None:
        copied = only(rf"^{self._bytes} bytes .* copied, (\d{{1,9}}(?:\.\d+)?) s", output)
        return float(copied[1]) if copied else None

    @property
    def _bytes(self) -> int:
        return parse_bytes(self.parameters.size)


def _metric(case: str) -> Metric:
    return Metric(f"smb.{case}.bytes_per_second", "B/s", "higher")
