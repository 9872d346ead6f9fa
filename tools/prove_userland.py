"""A VM of the user's of another family, for tools/prove_guests.py: busybox is its userland, without systemd and udev.

As in Alpine, sh, mount, unshare, modprobe and init are busybox's; kernel, agent and C library are Debian's,
for neither Alpine's nor Fedora's archive is at hand where this is tried.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.owners_vm import GuestFiles, make_guest

if TYPE_CHECKING:
    from tools.prove_guests import Bench

KILLS = 3
# In the root of a Debian that has busybox and xz: busybox's modprobe reads no compressed module.
REPLACE = r"""
set -e
find /lib/modules -name '*.ko.xz' -exec xz -d {} +
depmod "$(ls /lib/modules)"
cp /usr/bin/busybox /busybox
/busybox find /usr/bin /usr/sbin -mindepth 1 ! -name qemu-ga -exec /busybox rm -rf {} +
/busybox cp /busybox /usr/bin/busybox
/usr/bin/busybox --install -s
rm -rf /busybox /etc/systemd /usr/lib/systemd /usr/lib/udev
mkdir -p /etc/init.d
cat > /etc/inittab <<'END'
::sysinit:/etc/init.d/rcS
::respawn:/usr/sbin/agent
END
cat > /etc/init.d/rcS <<'END'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=755 run /run
modprobe virtio_console
END
cat > /usr/sbin/agent <<'END'
#!/bin/sh
port=/dev/$(ls -d /sys/class/virtio-ports/*/ | while read -r each; do
    [ "$(cat "$each/name")" != org.qemu.guest_agent.0 ] || basename "$each"
done)
exec "$(ls /usr/bin/qemu-ga /usr/sbin/qemu-ga 2> /dev/null | head -n 1)" -m virtio-serial -p "$port"
END
chmod 755 /etc/init.d/rcS /usr/sbin/agent
"""


def busybox(bench: Bench) -> None:
    """It is measured, left as it was, and killed runs leave nothing in it."""
    with bench.lv.domain("busybox", busybox_guest(bench.home)) as here:
        before = bench.definition(here)
        code, said = bench.measured(here, "--rounds", "1")
        bench.score.check(code == 0 and "as before, and running" in said, f"busybox: {said[-300:]}")
        bench.score.check("not measured" not in said, f"busybox: every figure is there: {said[-300:]}")
        bench.is_left_alone(here, before, "busybox")
        bench.kill_runs(here, KILLS)


def busybox_guest(directory: Path) -> GuestFiles:
    """Its files, made in a new directory there."""
    place = directory / "busybox"
    place.mkdir()
    return make_guest("trixie", place, ",busybox-static,xz-utils", REPLACE)
