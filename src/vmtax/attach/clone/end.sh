# Ends our backup job of a domain, and waits until it has ended. Succeeds if there is no such job: another one is not
# ours. Arguments: URI of the connection, UUID of the domain, the name of the job's socket, the domain's name for people.
uri=$1 uuid=$2 mark=$3 name=$4
ask() { LC_ALL=C virsh --quiet --connect "$uri" "$1" --domain "$uuid" 2>&1; }
has() { # 0: our job runs; 1: none of ours; 2: libvirt cannot be asked
    if said=$(ask backup-dumpxml); then
        case $said in *"$mark"*) return 0 ;; esac
        return 1
    fi
    case $said in
        *"failed to get domain"* | *"Domain not found"* | *"not running"* | *"no domain backup job"*) return 1 ;;
    esac
    echo "whether $name still has a backup job of ours is not known: $said" >&2
    return 2
}
has
code=$?
[ $code -eq 0 ] || exit $((code - 1))
tries=0
while has; do
    ask domjobabort > /dev/null
    tries=$((tries + 1))
    if [ $tries -gt 60 ]; then
        echo "the backup job of $name does not end: virsh domjobabort $uuid" >&2
        exit 1
    fi
    sleep 0.5
done
has
[ $? -eq 1 ]
