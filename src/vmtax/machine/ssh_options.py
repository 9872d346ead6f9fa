"""The user's ssh configuration says how a host is reached. What a session is, we say: these options override it.

Once logged in, clients go through the master's socket and read no configuration at all (`ssh -F none`).
"""

from __future__ import annotations

import functools
import re
import shutil

from vmtax.machine.local import plain_environment, run_here

LOGIN = {
    # Nothing but what we start, here or there
    "RemoteCommand": "none",
    "PermitLocalCommand": "no",
    "RequestTTY": "no",
    "EscapeChar": "none",
    # No ports, displays, agents or interfaces of the user's: another login has them, or it fails for them
    "ClearAllForwardings": "yes",
    "ExitOnForwardFailure": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "Tunnel": "no",
    "GatewayPorts": "no",
    "StreamLocalBindMask": "0177",
    "StreamLocalBindUnlink": "no",
    # What is shown when a login fails; from QUIET nothing comes, from DEBUG hundreds of lines
    "LogLevel": "INFO",
    "LogVerbose": "none",
    # Neither takes time of a CPU that is measured, nor ends a command that is silent
    "Compression": "no",
    "ChannelTimeout": "none",
    # A server that answers no more is noticed within half a minute
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
}
# Of a login without a master connection, which leaves no file: no socket, no key
ALONE = {
    "ControlMaster": "no",
    "ControlPath": "none",
    "UpdateHostKeys": "no",
    "SessionType": "default",
    "StdinNull": "no",
    "ForkAfterAuthentication": "no",
}
_NO_SUCH = re.compile(r"Bad configuration option: (\w{1,100})")
ASKING_SECONDS = 10.0  # for a client to print its version


def options(*settings: dict[str, str]) -> tuple[str, ...]:
    """These settings as arguments of the client; without those that it is too old to have."""
    return _known(shutil.which("ssh"), tuple((name, value) for each in settings for name, value in each.items()))


@functools.cache
def _known(client: str | None, settings: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """IgnoreUnknown would do the same, but override the user's. A client that prints its version connects to nothing
    and reads no configuration.
    """
    words = tuple(word for name, value in settings for word in ("-o", f"{name}={value}"))
    if client is None:
        return words
    asked = run_here("", (client, *words, "-V"), plain_environment(), None, ASKING_SECONDS)
    found = _NO_SUCH.search(asked.stderr)
    left = tuple(pair for pair in settings if not found or pair[0].lower() != found[1].lower())
    return words if left == settings else _known(client, left)
