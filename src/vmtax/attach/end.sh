# Has the guest's agent run a command, which ends what we started there, and waits until that is done, before the disk is
# unplugged that it uses. Succeeds if no agent answers: it ends by itself then, because nobody is connected. Arguments:
# URI of the connection, UUID of the domain, the agent's command.
ask() { LC_ALL=C virsh --quiet --connect "$uri" qemu-agent-command --domain "$uuid" --timeout 10 --cmd "$1" 2> /dev/null; }
uri=$1 uuid=$2
pid=$(ask "$3" | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
[ -n "$pid" ] || exit 0
status="{\"execute\":\"guest-exec-status\",\"arguments\":{\"pid\":$pid}}"
tries=0
until ask "$status" | grep -q '"exited":true'; do
    tries=$((tries + 1))
    [ $tries -le 40 ] || break
    sleep 0.5
done
sleep 1
exit 0
