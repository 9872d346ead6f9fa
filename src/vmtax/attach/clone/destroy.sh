# Ends a clone, a domain that libvirt forgets then. Succeeds if there is no such domain. Arguments: URI of the connection,
# UUID of the clone.
uri=$1 uuid=$2
ask() { LC_ALL=C virsh --quiet --connect "$uri" "$1" --domain "$uuid" 2>&1; }
tries=0
while said=$(ask domstate) || case $said in *"failed to get domain"* | *"Domain not found"*) false ;; esac; do
    ask destroy > /dev/null
    tries=$((tries + 1))
    if [ $tries -gt 60 ]; then
        echo "a clone does not end: virsh destroy $uuid: $said" >&2
        exit 1
    fi
    sleep 0.5
done
