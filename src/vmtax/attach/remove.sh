# Removes a file that was plugged into a domain, unless the domain was saved with it: it would not start without. Arguments:
# URI of the connection, UUID of the domain, the file, the domain's name for people.
uri=$1 uuid=$2 file=$3 name=$4
ask() { LC_ALL=C virsh --quiet --connect "$uri" "$1" --domain "$uuid" $2 2>&1; }
saved() { # whether it was saved with that in it, and would not start without it
    if said=$(ask managedsave-dumpxml); then
        case $said in *"$1"*) return 0 ;; esac
        return 1
    fi
    case $(ask domstate --reason) in *"(saved)"*) return 0 ;; esac # into a file of its owner's
    return 1
}
if [ -e "$file" ] && saved "$file"; then
    echo "$name was saved with $file as a disk: virsh start $name (or virsh restore); the next vmtax removes it" >&2
    exit 1
fi
rm -f -- "$file"
