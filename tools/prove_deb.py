"""Shows that new machines build the Debian package, install it, use it, and remove it without a trace.

    tools/python tools/prove_deb.py [SUITE...]

For each Debian, one new machine builds the package, and another one, on which nothing of that happened, installs it.
While it does, a program holds each lock of apt and dpkg until `tools/packages` has said that it waits. Needs root. One
line for each Debian; exit code 1 if anything was not as it should be.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITES = ("bookworm", "trixie")
BUILD = "make deb >&2 && basename dist/*.deb && cat dist/*.deb"
# The package is standard input.
USE = r"""
set -euo pipefail
cat > /tmp/vmtax.deb

hold='use Fcntl; $| = 1; alarm 900; open(F, "+>>", $ARGV[0]) or die; $l = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
fcntl(F, F_SETLK, $l) or die "$!"; print "locked\n"; sleep'
waits() { # for a program that locks $1, before it installs package $2
    coproc perl -e "$hold" "$1"
    read -r <&"${COPROC[0]}"
    tools/packages "$2" | while read -r line; do
        case $line in
            "waiting for process $COPROC_PID (perl), which has locked $1;"*) touch said; kill "$COPROC_PID" ;;
        esac
    done
    rm said
    dpkg-query -W "$2"
    wait
}
waits /var/lib/apt/lists/lock bubblewrap
waits /var/lib/dpkg/lock-frontend zstd
waits /var/lib/dpkg/lock iproute2
waits /var/cache/apt/archives/lock erofs-utils

DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends /tmp/vmtax.deb
cd /tmp
vmtax --version
vmtax plan check quick
vmtax doctor > doctor || true # fails where there is no KVM
cat doctor
grep -E '^ +ok +QEMU ' doctor && grep -E '^ +ok +tools ' doctor
vmtax import /src/tests/golden/2026-11-22b/exported/*-quick-0001.run.gz
vmtax show --full
vmtax report -o report.html
. /usr/share/bash-completion/completions/vmtax && complete -p vmtax
test -s /usr/share/man/man1/vmtax.1.gz

dpkg --verify vmtax
# Nothing was written there.
test "$(find /usr/lib/vmtax | sort)" = "$(dpkg-query -L vmtax | grep ^/usr/lib/vmtax | sort)"
size=$(du -s --block-size=1000000 --apparent-size /usr/lib/vmtax | cut -f 1)
DEBIAN_FRONTEND=noninteractive apt-get purge --yes vmtax
left=$(find / -xdev -name '*vmtax*' -not -path '/src/*' -not -path '/root/*' -not -path '/tmp/*')
test -z "$left" || { echo "left: $left"; exit 1; }
echo "$size"
"""


def on_new_machine(suite: str, script: str, given: bytes = b"") -> bytes:
    """Standard output; raises CalledProcessError."""
    argv = [str(ROOT / "tools/pristine"), "--suite", suite, "bash", "-c", script]
    return subprocess.run(argv, input=given, capture_output=True, check=True).stdout


def proved(suite: str) -> bool:
    began = time.monotonic()
    try:
        name, _, package = on_new_machine(suite, BUILD).partition(b"\n")
        size = on_new_machine(suite, USE, package).splitlines()[-1].decode()
    except subprocess.CalledProcessError as error:
        lines = (error.stdout + error.stderr).decode(errors="replace").splitlines()
        print("\n".join([f"{suite}: FAILED, exit code {error.returncode}; the last lines:", *lines[-30:]]), flush=True)
        return False
    took = f"{time.monotonic() - began:.0f} s"
    sizes = f"{len(package) / 1e6:.0f} MB, {size} MB installed"
    print(f"{suite}: {name.decode()} ({sizes}) was built, installed, used and removed in {took}", flush=True)
    return True


if __name__ == "__main__":
    results = [proved(suite) for suite in sys.argv[1:] or SUITES]
    sys.exit(not all(results))
