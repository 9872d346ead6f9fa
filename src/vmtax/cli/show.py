"""What `vmtax show` does."""

from __future__ import annotations

from vmtax.cli.app import BadUse, answer, printed, say
from vmtax.cli.asked_results import Asked, ShowOptions
from vmtax.cli.options import PART
from vmtax.cli.results import NOTHING, analysis_of, print_as
from vmtax.report.answers.summary import summary
from vmtax.report.show import evidence, render


def show(run: str, options: ShowOptions, asked: Asked) -> None:
    """One of several answers; refuses options of which another one would take no notice."""
    full, apply, json, part, format = options.full, options.apply, options.json, options.part, options.format
    if options.why:
        if apply or json or part or format or full:
            raise BadUse("--why prints the evidence as text: leave out --apply, --json, --format and --full")
        printed(evidence(analysis_of(run, asked), options.why), paged=not options.no_pager)
        return
    if part and part != PART:
        raise BadUse(f"--json={part}: an answer has no such part; --json={PART} prints the figures of the first screen")
    if part and (apply or format or full):
        raise BadUse(f"--json={PART} prints one part of the answer: leave out --apply, --format and --full")
    if part:
        answer(PART, summary(analysis_of(run, asked)))
        return
    if not apply:
        if json and format not in ("", "json"):
            raise BadUse(f"--json and --format {format} are two formats: leave out one of them")
        if full and (json or format):
            raise BadUse("--full is about the text on the terminal; other formats hold everything: leave out --full")
        shown(run, "json" if json else format, full=full, asked=asked, paged=not options.no_pager)
        return
    if json or format or full:
        raise BadUse("--apply prints one recommendation as text: leave out --json, --format and --full")
    _applied(run, asked)


def shown(run: str, format: str, *, full: bool = False, asked: Asked = NOTHING, paged: bool = False) -> None:
    """Print it on the terminal, or as text in one of FORMATS."""
    if format:
        print_as(run, format, asked=asked)
    else:
        printed(render(analysis_of(run, asked), full), paged=paged)


def _applied(run: str, asked: Asked) -> None:
    """Print the recommendation in every form, ready to be copied."""
    from vmtax.report.sections.recommendation import recommendations, to_apply, why_not

    analysis = analysis_of(run, asked)
    found = recommendations(analysis)
    if not found:
        raise BadUse(f"--apply: {why_not(analysis)}")
    texts = [to_apply(one) for one in found]  # raises before anything is printed if nothing meets the needs
    for number, text in enumerate(texts):
        for line in (*([""] if number else ()), *text):
            say(line)
