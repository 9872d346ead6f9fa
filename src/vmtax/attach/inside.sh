# Runs in the user's guest, first process of its own namespaces of mounts and processes: when it ends, everything that
# it started has ended, and what it mounted is gone. Arguments: serial number of the image's disk, name of the port.
# Standard input: a public key of ours.
set -e
umask 022
serial=$1 port_name=$2
disk() {
    for each in /sys/block/*; do
        said=$(cat "$each/serial" 2> /dev/null || tr -cd '[:alnum:]-' < "$each/device/vpd_pg80" 2> /dev/null) || continue
        case $said in *"$serial") echo "/dev/${each##*/}"; return ;; esac
    done
}
port() { # which not every system names in /dev/virtio-ports
    for each in /sys/class/virtio-ports/*; do
        [ "$(cat "$each/name" 2> /dev/null)" != "$port_name" ] || echo "/dev/${each##*/}"
    done
}
[ "$(uname -m)" = x86_64 ] || exit 76
IFS= read -r public
for module in virtio_console virtio_scsi sd_mod erofs; do modprobe -q "$module" 2> /dev/null || true; done
tries=0
while [ -z "$(disk)" ] || [ ! -c "$(port)" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 240 ] || exit 71
    sleep 0.25
done
port=$(port)
grep -qw erofs /proc/filesystems || exit 72
[ -d /mnt ] || exit 75
mount --make-rprivate / || exit 73
mount -t tmpfs -o mode=755,size=1m none /mnt || exit 73
root=/mnt/root
mkdir "$root"
mount -t erofs -o ro "$(disk)" "$root" || exit 72
mount -t tmpfs -o mode=755,size=64m none "$root/run"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
umask 077
mkdir -p "$root/run/sshd" "$root/run/vmtax"
printf '%s\n' "$public" > "$root/run/vmtax/authorized_keys"
chroot "$root" ssh-keygen -q -t ed25519 -N '' -f /run/vmtax/host_key
# The port reads an end of file as long as nobody is connected to it, so a server that ends at once had no client: after
# a minute without one, the run has ended, however that was.
idle=0
while [ "$idle" -lt 60 ] && [ -c "$port" ]; do # opening a port that was unplugged would make a file in its place
    began=$(date +%s)
    chroot "$root" /usr/sbin/sshd -i -f /dev/null -o HostKey=/run/vmtax/host_key \
        -o AuthorizedKeysFile=/run/vmtax/authorized_keys -o UsePAM=no -o StrictModes=no -o UseDNS=no \
        -o MaxSessions=1000 -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \
        -o PermitRootLogin=prohibit-password -o SetEnv=XDG_STATE_HOME=/tmp/state <> "$port" 1>&0 2> /dev/null || true
    [ $(($(date +%s) - began)) -gt 5 ] && idle=0
    idle=$((idle + 1))
    sleep 1
done
