# Thaws the file systems of a domain's guest. Succeeds if none is frozen, if no agent answers that could have frozen them,
# or if there is no such domain that runs; not if the agent is busy or refuses. Arguments: URI of the connection, UUID of
# the domain, its name for people.
uri=$1 uuid=$2 name=$3
ask() { LC_ALL=C virsh --quiet --connect "$uri" "$1" --domain "$uuid" 2>&1; }
tries=0
until said=$(ask domfsthaw); do
    case $said in
        *"failed to get domain"* | *"Domain not found"* | *"domain is not running"* | *"not configured"*) exit 0 ;;
        *"has been disabled"* | *"not connected"*) exit 0 ;; # what may not thaw has not frozen; nobody answers there
    esac
    tries=$((tries + 1))
    if [ $tries -gt 20 ]; then
        echo "file systems of $name may be frozen: virsh domfsthaw $uuid: $said" >&2
        exit 1
    fi
    sleep 0.5
done
