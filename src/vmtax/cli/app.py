"""What all commands share: the application, its options, how it asks, prints and fails."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from vmtax import __version__
from vmtax.cli.command import App
from vmtax.cli.completion import before_word
from vmtax.core.errors import DONE, BadInput, CannotDo
from vmtax.core.units import printable
from vmtax.report.render.formats import FORMATS
from vmtax.system.output_file import replacing

ORDER = (
    "doctor",
    "run",
    "watch",
    "calibrate",
    "show",
    "report",
    "compare",
    "runs",
    "export",
    "import",
    "clean",
    "lab",
    "plan",
    "image",
)


class InOrder(TyperGroup):
    """Lists commands as they are needed, not as they are written."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = App(
    rich_markup_mode="markdown",  # the other mode takes [user@] for markup
    cls=InOrder,
    help="What virtualization costs you: host against VM against nested VM, with confidence intervals.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def complete_plan(incomplete: str) -> list[str]:
    """Built-in plans, for the shell's completion."""
    from vmtax.plan.schema import builtin_plans

    return [name for name in builtin_plans() if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Ids of the runs in the store, newest first."""
    return run_ids(incomplete)


def run_ids(incomplete: str, *states: str) -> list[str]:
    """Ids of the runs that begin so and, where `states` are named, are in one of them."""
    from vmtax.store import Store, default_path

    if not default_path().exists():
        return []  # completing must not make a store
    try:
        with Store() as store:
            found = store.experiments()
    except CannotDo:
        return []  # a message in the middle of somebody's typing helps nobody; the command itself will say it
    return [entry.id for entry in found if entry.id.startswith(incomplete) and (not states or entry.state in states)]


def format_option(names: Sequence[str]) -> Any:
    """The option `--format` of a command that writes these."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(names)}.", autocompletion=complete)


def complete_profile(incomplete: str) -> list[str]:
    """Kinds of work that storage is ranked for."""
    from vmtax.analysis.weight_profiles import PROFILES

    return [name for name in PROFILES if name.startswith(incomplete)]


def complete_needs(incomplete: str) -> list[str]:
    """Features that a disk may be asked for, after those that are named already."""
    from vmtax.recommend import NEEDS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in NEEDS if name.startswith(last) and name not in before.split(",")]


def complete_vary(incomplete: str) -> list[str]:
    """Factors, and behind `=` their levels."""
    from vmtax.plan.vary import completions

    before = before_word()
    return [offer.removeprefix(before) for offer in completions(before + incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, schema vmtax/1.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking; for scripts.")]
Emulate = Annotated[
    bool,
    typer.Option("--emulate", help="Go on where no guest boots with KVM: the figures say nothing about cost then."),
]
FormatName = Annotated[str, format_option(list(FORMATS))]
TextName = Annotated[str, format_option([format.name for format in FORMATS.values() if format.text])]
ForProfile = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="WORK",
        help="Rank storage for database, fileserver, desktop or build.",
        autocompletion=complete_profile,
    ),
]
Weights = Annotated[
    str,
    typer.Option("--weights", metavar="METRIC=NUMBER,...", help="Rank storage by these metrics, weighted so."),
]
Needs = Annotated[
    str,
    typer.Option(
        "--needs",
        metavar="FEATURE,...",
        help="Recommend a disk that has these: durable, savevm, snapshots, file, thin, pause-on-full, migration.",
        autocompletion=complete_needs,
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Recommend also what loses flushed data when the host loses power."),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="FACTOR=LEVEL,...",
        help="Compare these levels of a factor; the first is the baseline.",
        autocompletion=complete_vary,
    ),
]
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, the start of one, or 'last'.", autocompletion=complete_run),
]

LONGEST = 2000  # characters of an error's line
NOBODY = "this asks before it begins, and nobody is there to answer: add --yes"


class BadUse(BadInput):
    """Options that do not go together, or a place that takes no file."""


def fail(text: str, code: int) -> NoReturn:
    """End with `text` on stderr, and as JSON on stdout where that was asked for."""
    complain(text, code)
    raise SystemExit(code)


def complain(text: str, code: int) -> None:
    """Say why the program ends with that exit code; an answer of no is no error."""
    warn(text)
    if code != DONE and _wants_json(sys.argv[1:]):
        from vmtax.report.answers.others import Error

        answer("error", Error(code, text))


def warn(text: str) -> None:
    """One line or more on stderr."""
    for line in f"vmtax: {text}".strip("\n").split("\n"):
        say(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}", file=sys.stderr)


def say(text: object, *, file: TextIO | None = None) -> None:
    """Print one line. What a tool, a guest or a file says may hold escape sequences; none gets through."""
    print(printable(str(text)), file=file)


def document(text: str) -> None:
    """Print a whole text as it is, which has its own rules of what stands in it: HTML, YAML, JSON."""
    print(text, end="" if text.endswith("\n") else "\n")


def _wants_json(argv: Sequence[str]) -> bool:
    """Whether the command that is named here has the option --json, and it is given."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return "--json" in words and any("--json" in parameter.opts for parameter in command.params)


def agree(yes: bool, question: str = "Begin? [Y/n]") -> None:
    """Go on only where somebody said so; the capital letter is what an empty answer means."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadUse(NOBODY)
    print(f"{question} ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()  # empty at its end: Ctrl-D is no yes
    default = line.strip() == "" and line != "" and "[Y" in question
    if line.strip().lower() not in ("y", "yes") and not default:
        fail("not begun; nothing was changed", DONE)


def agree_to_erase(yes: bool, devices: Sequence[str]) -> None:
    """Go on only where somebody typed the name of each device; an empty answer is a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadUse(NOBODY)
    for device in devices:
        name = device.removeprefix("/dev/")
        print(f"Type {name} to erase all that is on it: ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip() not in (name, device):
            fail("not begun; nothing was changed", DONE)


def write_file(file: Path, data: bytes) -> None:
    """Replaced in one step: an earlier report is lost to no full disk. Raises BadUse."""
    try:
        with replacing(file) as stream:
            stream.write(data)
    except OSError as error:
        raise BadUse(f"{file}: {error.strerror}; name another file with --output") from error


def printed(renderable: Any, *, soft_wrap: bool = False) -> None:
    """Print what rich renders."""
    from vmtax.system.console import console

    console().print(renderable, soft_wrap=soft_wrap)


def answer(kind: str, data: Any) -> None:
    """Print what `--json` asks for."""
    from vmtax.report.render.envelope import envelope

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
) -> None:
    pass
