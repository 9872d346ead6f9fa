"""The application object, and how every command asks, prints and fails."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from vmtax import __version__
from vmtax.cli.command import App, Main
from vmtax.core.errors import DONE, BadInput
from vmtax.core.units import printable
from vmtax.system.output_file import replacing

if TYPE_CHECKING:
    from vmtax.store import Store

app = App(
    cls=Main,
    help="Measure what virtualization costs: the host against a VM against a nested VM, with confidence intervals.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


LONGEST = 2000  # characters of an error's line
NOBODY = "this asks before it begins, and there is no terminal to answer from: add --yes"


class BadUse(BadInput):
    """Options that contradict each other, or a path where no file can be written."""


def fail(text: str, code: int) -> NoReturn:
    """End the program with `text` on stderr, and as JSON on stdout if --json is given."""
    complain(text, code)
    raise SystemExit(code)


def complain(text: str, code: int) -> None:
    """Print why the program ends with that exit code; answering "no" to a question is no error."""
    warn(text)
    if code != DONE and _wants_json(sys.argv[1:]):
        from vmtax.report.answers.others import Error

        answer("error", Error(code, text))


def warn(text: str) -> None:
    """One line or more on stderr."""
    for line in f"vmtax: {text}".strip("\n").split("\n"):
        say(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}", file=sys.stderr)


def with_result(store: Store, wanted: str, plan: str = "") -> str:
    """The id of the run whose results the user means, as in `Store.choose`; one line on stderr names a newer one that
    has none.
    """
    from vmtax.store.choice import RESULTS

    choice = store.choose(wanted, RESULTS, plan)
    if choice.note:
        warn(choice.note)
    return choice.run.id


def say(text: object, *, file: TextIO | None = None) -> None:
    """Print one line, without escape sequences that text from a tool, a guest or a file may contain."""
    print(printable(str(text)), file=file)


def asked(question: str) -> str:
    """The line that is typed in answer to a question on stderr; "" at the end of input: Ctrl-D is no answer."""
    print(f"{printable(question)} ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def say_wrapped(text: str, *, first: str = "", indent: int = 2) -> None:
    """Print a text in lines as wide as the screen: the first begins with `first`, all others with spaces. Words, such
    as the names of cases and paths, remain whole.
    """
    width = shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(width, first, " " * indent, break_long_words=False, break_on_hyphens=False)
    for line in wrapper.wrap(text):
        say(line)


def document(text: str | Iterable[str]) -> None:
    """Print a whole text unchanged, all at once or piece by piece: HTML, YAML, JSON."""
    last = ""
    for piece in (text,) if isinstance(text, str) else text:
        print(piece, end="")
        last = piece[-1:] or last
    print(end="" if last == "\n" else "\n")


def _wants_json(argv: Sequence[str]) -> bool:
    """Whether the command in `argv` has the option --json, and it is given."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return any(word.partition("=")[0] == "--json" for word in words) and any(
        "--json" in parameter.opts for parameter in command.params
    )


def agree(yes: bool, question: str = "Begin? [Y/n]") -> None:
    """Return only if the answer is yes; an empty answer means the choice in capitals."""
    if not yes:
        line = _typed(question)
        default = line.strip() == "" and line != "" and "[Y" in question
        if line.strip().lower() not in ("y", "yes") and not default:
            fail("not begun; nothing was changed", DONE)


def agree_to_erase(yes: bool, devices: Sequence[str]) -> None:
    """Return only if the name of each device is typed; an empty answer means no."""
    for device in () if yes else devices:
        name = device.removeprefix("/dev/")
        if _typed(f"Type {name} to erase all that is on it:").strip() not in (name, device):
            fail("not begun; nothing was changed", DONE)


def agree_to_cut(yes: bool, host: str, command: str) -> None:
    """Return only if the host's name is typed; an empty answer means no."""
    if not yes and _typed(f"Type {host} to have its power cut by {command}:").strip() != host:
        fail("not begun; nothing was changed", DONE)


def _typed(question: str) -> str:
    """As `asked`. Raises BadUse without a terminal."""
    if not sys.stdin.isatty():
        raise BadUse(NOBODY)
    return asked(question)


def write_file(file: Path, data: bytes | Iterable[bytes]) -> None:
    """Write in one step, so that a full disk leaves the earlier file unchanged; the data may come piece by piece.
    Raises BadUse.
    """
    try:
        with replacing(file) as stream:
            stream.writelines((data,) if isinstance(data, bytes) else data)
    except OSError as error:
        raise BadUse(f"{file}: {error.strerror}; name another file with --output") from error


def printed(renderable: Any, *, paged: bool = False) -> None:
    """Print a rich renderable, without trailing spaces; `paged`: through a pager if stdout is a terminal."""
    from vmtax.system import pager
    from vmtax.system.console import as_text

    text = as_text(renderable)
    words = pager.command() if paged else []
    if not words or not pager.page(text, words):
        document(text)


def answer(kind: str, data: Any) -> None:
    """Print the answer of `--json`."""
    from vmtax.report.answers.envelope import envelope

    document(envelope(kind, data))


def _version(wanted: bool) -> None:
    if wanted:
        say(f"vmtax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="ADDRESS",
            help="Where runs are stored: a file, or postgresql://USER@HOST/DATABASE, which several machines share. Also"
            " VMTAX_STORE. Default: vmtax/vmtax.sqlite in XDG_DATA_HOME.",
        ),
    ] = None,
) -> None:
    if store is not None:
        from vmtax.cli.store_address import use_store

        use_store(store)
