# Removes a file that was plugged into a domain, unless the domain was saved with it: it would not start without. After
# saved.sh. Arguments: as there, the file, the domain's name for people.
file=$3 name=$4
if [ -e "$file" ] && saved "$file"; then
    echo "$name was saved with $file as a disk: virsh start $name (or virsh restore); the next vmtax removes it" >&2
    exit 1
fi
rm -f -- "$file"
