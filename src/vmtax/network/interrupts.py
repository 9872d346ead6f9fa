"""How long a guest's network card may wait, after a packet, before it interrupts.

The same as `ethtool -C NAME adaptive-rx off rx-usecs N`. ethtool is not in the root image: for two requests it would be
a new image for everybody, and it fails where a driver has no adaptive delay to switch off.
"""

from __future__ import annotations

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.machine import Machine
from vmtax.machine.answer import whole_of
from vmtax.machine.local import ISOLATED, PYTHON

# Arguments: a card, and microseconds. It sets how long the card may delay its interrupt for a received packet, and
# prints what the driver then says it is; a driver that cannot delay it ends the program with its error. 0x8946 is
# SIOCETHTOOL, 14 and 15 are ETHTOOL_GCOALESCE and ETHTOOL_SCOALESCE. Of the 23 numbers of struct ethtool_coalesce, the
# second is the delay, and the eleventh whether the driver adapts it. Constant text.
PROGRAM = """\
import ctypes, fcntl, socket, struct, sys
GET, SET, DELAY, ADAPTS = 14, 15, 1, 10
numbers = (ctypes.c_uint32 * 23)()
request = struct.pack("16sP16x", sys.argv[1].encode(), ctypes.addressof(numbers))
def ask(command):
    numbers[0] = command
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
        fcntl.ioctl(any, 0x8946, request)
try:
    ask(GET)
    numbers[DELAY], numbers[ADAPTS] = int(sys.argv[2]), 0
    ask(SET)
    ask(GET)
except OSError as error:
    sys.exit(error.strerror)
print(numbers[DELAY])
"""
SET_DELAY = (PYTHON, *ISOLATED, PROGRAM)
ROUNDED = 0.05  # drivers round to the steps of their card: e1000e makes 4,032 us of 4,000


def delay_interrupts(guest: Machine, card: str, microseconds: int) -> None:
    """Set how long the card may delay its interrupt for a received packet. Raises CannotDo if it does not do that."""
    done = guest.try_run(*SET_DELAY, card, str(microseconds))
    if not done.ok:
        raise CannotDo(first_line(done.stderr) or "no answer")
    obtained = whole_of(guest, f"the delay of {card}'s interrupts", done.stdout)
    if abs(obtained - microseconds) > ROUNDED * microseconds:
        raise CannotDo(f"{obtained} of {microseconds} us was set")
