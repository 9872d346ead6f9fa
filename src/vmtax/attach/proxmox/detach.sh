# Takes a device of ours out of a VM, waits until the guest has let go of it, and then gives QEMU's monitor further
# commands, for what stood behind the device. Succeeds if there is no such device, or the VM does not run; not if it
# cannot be asked. Arguments: the VM's number, the id of the device ("": none), the commands.
vmid=$1 device=$2
shift 2
ask() { LC_ALL=C pvesh create "/nodes/localhost/qemu/$vmid/monitor" --command "$1" --output-format json 2>&1; }
has() { # 0: it has the device; 1: it has not, or the VM does not run; 2: it cannot be asked
    if said=$(ask "info qtree"); then
        case $said in *"$device\\\""*) return 0 ;; esac # the end of an id in JSON
        return 1
    fi
    case $said in *"VM $vmid not running"* | *"qemu-server/$vmid.conf' does not exist"*) exit 0 ;; esac
    echo "whether VM $vmid still has $device is not known: $said" >&2
    return 2
}
tries=0
while [ -n "$device" ]; do
    has
    code=$?
    [ $code -ne 1 ] || break
    [ $code -ne 2 ] || exit 1
    ask "device_del $device" > /dev/null # again: a guest that boots forgets the first one
    tries=$((tries + 1))
    if [ $tries -gt 60 ]; then
        echo "VM $vmid does not let go of $device: qm monitor $vmid, device_del $device" >&2
        exit 1
    fi
    sleep 0.5
done
for each in "$@"; do # what is gone with its device is not there any more
    tries=0
    while said=$(ask "$each"); do
        case $said in *"in use"*) ;; *) break ;; esac # the device was let go of a moment ago
        tries=$((tries + 1))
        if [ $tries -gt 60 ]; then
            echo "VM $vmid keeps what stood behind $device: qm monitor $vmid, $each: $said" >&2
            exit 1
        fi
        sleep 0.5
    done
done
exit 0
