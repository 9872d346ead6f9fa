"""SMB: copy a file from and to a private smbd at the peer, through the guest kernel's cifs, and check its digest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vmtax.core.layers import GUESTS
from vmtax.core.quantities import Quantity
from vmtax.core.records import Measurement, Metric
from vmtax.core.units import parse_bytes
from vmtax.workload.base import Measure, Parameters
from vmtax.workload.linked import Linked
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import TIMED, Access, PeerServer, Site, link_of

PORTS_APART = 2000  # added to iperf3's port of a machine, for smbd's
SLOW = 100e6  # bytes per second, for estimates
STATE_BYTES = 16 * 2**20  # for smbd's own files, and as many are spare in the share
SMBD_BYTES = 192 * 2**20  # for the memory of its processes
# Constant text. $1: address, $2: port, $3: bytes of the file, then the cases. Standard input: the user and the password
# that a client must know; no command line has them. There is a share for each case, and what is read cannot be written.
# The shares are in a tmpfs of a fixed size, smbd's own files in another one, which a client cannot fill. The digest of
# the file is printed, and is nowhere where a client could change it. Of the three processes, two are smbd's own, so
# that there is one client at a time.
SERVER = """
read -r user password && test -n "$password" || exit
address=$1 port=$2 bytes=$3
shift 3
umask 077
mkdir -p /run/smb /tmp/smb || exit
cat > /run/smb.conf <<END
[global]
server role = standalone server
server min protocol = SMB3
interfaces = $address
bind interfaces only = yes
smb ports = $port
disable netbios = yes
load printers = no
printcap name = /dev/null
map to guest = never
restrict anonymous = 2
username map = /run/smb/users
max smbd processes = 3
ea support = no
store dos attributes = no
durable handles = no
private dir = /run/smb
lock directory = /run/smb
state directory = /run/smb
cache directory = /run/smb
pid directory = /run/smb
ncalrpc dir = /run/smb/rpc
END
echo "root = $user" > /run/smb/users
for case; do
    mkdir "/tmp/smb/$case" || exit
    only=yes
    test "$case" = in || only=no
    printf '[%s]\npath = /tmp/smb/%s\nvalid users = root\nread only = %s\n' "$case" "$case" "$only" >> /run/smb.conf
    if test "$case" = in; then head -c "$bytes" /dev/urandom > /tmp/smb/in/in || exit; fi
done
printf '%s\n%s\n' "$password" "$password" | smbpasswd -c /run/smb.conf -a -s root >&2 || exit
unset password
if test -e /tmp/smb/in/in; then sha256sum < /tmp/smb/in/in; else echo none; fi || exit
exec smbd --foreground --no-process-group --debug-stdout --configfile=/run/smb.conf < /dev/null >&2
"""
# Constant text. $1: address, $2: port, $3: bytes, $4: case, $5: the digest that the server printed. Standard input as
# above. mount(8) reads user and password from a table: its options are visible to others. A read file stays in the page
# cache, from which its digest is calculated. A written file is read back from the server over another mount, which has
# none of it cached.
CLIENT = """
set -e
export LC_ALL=C
umask 077
read -r user password
mkdir -p /run/smb
printf '//%s/%s /run/smb cifs ip=%s,port=%s,vers=3.1.1,username=%s,password=%s,sec=ntlmssp 0 0\n' \
    "$1" "$4" "$1" "$2" "$user" "$password" > /run/smb.table
enter() {
    tries=0
    until mount -T /run/smb.table /run/smb; do
        tries=$((tries + 1))
        if test $tries -gt 30; then echo "smbd at $1 port $2 was not reached in 30 s" >&2; exit 1; fi
        sleep 1
    done
}
source() { left=$1; while test $left -gt 0; do head -c $left /run/block; left=$((left - 16777216)); done; }
trap 'rm -f /run/smb.table; umount /run/smb' EXIT
enter "$1" "$2"
if test "$4" = in; then
    dd if=/run/smb/in of=/dev/null bs=1M
    echo "wanted $5"
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
        "64MiB", description="size of the file; the peer keeps one such file in its memory for each case and guest"
    )


class Smb(Linked[SmbParameters]):
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

    def servers(self, address: str, port: int, access: Access) -> Sequence[PeerServer]:
        room = len(self.parameters.cases) * self._bytes + STATE_BYTES
        words = (address, str(port + PORTS_APART), str(self._bytes), *self.parameters.cases)
        return (
            PeerServer(
                (*TIMED, "sh", "-c", SERVER, "sh", *words),
                access.line,
                answers=True,
                room=room,
                memory=room + SMBD_BYTES,
                capabilities=("CAP_SETGID", "CAP_SETUID"),  # smbd switches to the user who logs in
            ),
        )

    def command(self, site: Site, case: str) -> Sequence[str]:
        link = link_of(site)
        words = (link.address, str(link.port + PORTS_APART), str(self._bytes), case, link.answer.partition(" ")[0])
        return ("sh", "-c", CLIENT, "sh", *words)

    def input(self, site: Site) -> str | None:
        access = link_of(site).access
        return None if access is None else access.line

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
