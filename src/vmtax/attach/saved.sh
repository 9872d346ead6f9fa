# Functions about a domain, for scripts whose first arguments are the URI of the connection and the UUID of the domain.
uri=$1 uuid=$2
ask() { LC_ALL=C virsh --quiet --connect "$uri" "$1" --domain "$uuid" $2 $3 2>&1; }
saved() { # whether it was saved with that in it, and would not start without it
    if said=$(ask managedsave-dumpxml); then
        case $said in *"$1"*) return 0 ;; esac
        return 1
    fi
    case $(ask domstate --reason) in *"(saved)"*) return 0 ;; esac # into a file of its owner's
    return 1
}
