# Begins a backup job while the file systems of a guest are frozen, and thaws them whatever happens. Arguments: URI of the
# connection, UUID of the domain, file with the job's XML.
uri=$1 uuid=$2 job=$3
ask() { LC_ALL=C virsh --quiet --connect "$uri" "$@" > /dev/null; }
trap 'ask domfsthaw --domain "$uuid"' EXIT
trap 'exit 1' HUP INT TERM
ask domfsfreeze --domain "$uuid" && ask backup-begin --domain "$uuid" --backupxml "$job"
