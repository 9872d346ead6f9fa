# Detaches a device of a domain, and waits until the guest has let go of it. Succeeds if there is no such device, or no
# such domain; not if libvirt cannot be asked, or if the domain was saved with the device in it. After saved.sh.
# Arguments: as there, alias of the device, the domain's name for people.
alias=$3 name=$4
has() { # 0: it has the device; 1: it has not, or there is no such domain; 2: libvirt cannot be asked
    if said=$(ask dumpxml); then
        case $said in *"<alias name='$alias'/>"*) return 0 ;; esac
        return 1
    fi
    case $said in *"failed to get domain"* | *"Domain not found"*) return 1 ;; esac
    echo "whether $name still has $alias is not known: $said" >&2
    return 2
}
out() { # ends with 0 if it is out of the domain for good
    if saved "$alias"; then
        echo "$name was saved with $alias in it: virsh start $name (or virsh restore); the next vmtax unplugs it" >&2
        exit 1
    fi
    exit 0
}
has
code=$?
[ $code -ne 1 ] || out
[ $code -eq 0 ] || exit $((code - 1))
ask detach-device-alias "$alias" --live > /dev/null # if that fails, it still has the device, or it is off meanwhile
tries=0
while has; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then
        echo "$name does not let go of $alias: virsh detach-device-alias $uuid $alias --live" >&2
        exit 1
    fi
    sleep 0.25
done
has
[ $? -eq 1 ] && out
