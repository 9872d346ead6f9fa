# Has the guest's agent run a command, which ends what we started there, and waits until that is done, before the disk is
# unplugged that it uses. Succeeds if no agent answers: it ends by itself then, because nobody is connected. Arguments:
# the VM's number, the command.
vmid=$1
shift
LC_ALL=C qm guest exec "$vmid" --timeout 20 -- "$@" > /dev/null 2>&1
sleep 1
exit 0
