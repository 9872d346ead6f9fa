"""Exit codes of vmtax, and its two kinds of failure, whose text explains them."""

from __future__ import annotations

DONE, FAILED, BAD_INPUT, WORSE, UNDECIDED, REBOOT, BUSY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
CLAIM_FAILS = UNDECIDED  # of another command, so the same number says no other thing there
MEANINGS = {
    DONE: "done, or not begun because the answer was no; `doctor`: host and VM can be measured, as far as it sees",
    FAILED: "could not measure, or could not read or store results; `doctor`: host or VM cannot be measured, or a"
    " trial of `--try` failed; also a fault in vmtax itself, whose message says so",
    BAD_INPUT: "bad input: an option, a plan, a name, a file to be imported, or no `--emulate` where guests would be"
    " emulated; nothing was begun",
    WORSE: "`compare --fail-if-worse`: a primary metric is shown to be worse by more than that",
    UNDECIDED: "`compare --fail-if-worse`: none is shown to be worse by more than that, but at least one is undecided:"
    " its interval reaches beyond, or it has none; `claim check`: something in the claim is wrong",
    REBOOT: "`run`: the host must be rebooted before the run goes on; the last line says how, and everything measured"
    " so far is kept",
    BUSY: "somebody else measures on the host, and the last line says who; nothing was begun, and the same command may"
    " be repeated (`run --wait` waits)",
    INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP: everything measured so far is kept",
}


class CannotDo(Exception):
    """The request cannot be carried out here; the text says what is wrong, where, and what to do."""

    exit_code = FAILED


class BadInput(Exception):
    """The request makes no sense; the text says what is wrong, where, and what would be right."""

    exit_code = BAD_INPUT
