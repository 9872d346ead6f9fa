"""Which configurations survive a power cut, by trial: one row each, and what the trials prove. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.durability import Evidence, Survival
from vmtax.analysis.losses import CONFIDENCE, End, percent
from vmtax.core.records import Json
from vmtax.core.units import at_most, count_of
from vmtax.design.topology import varying
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Folded,
    Kind,
    List,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    listed,
    name_cell,
)
from vmtax.report.wording.durability import IN_WORDS
from vmtax.report.wording.treatment_labels import factor_words
from vmtax.workload.durability import HOST_CUT, KILLED, NEEDED_STATES, POWER_CUT, REAL_CUT, REBUILT, STACK_CUT
from vmtax.workload.durability.records import CONTROL

TITLE = "What survives a power cut"
EACH = "Writer by writer"
HEADS = {
    KILLED: "guest killed",
    POWER_CUT: "power cut",
    HOST_CUT: "host cut",
    STACK_CUT: "stack cut",
    REAL_CUT: "real cut",
}
BOUNDED = (*REBUILT, REAL_CUT)  # kinds of end that are frequent enough for a bound to be meaningful
READING = (
    f"States with a loss, of those in which something had been acknowledged; the bound of their share is at"
    f" {percent(CONFIDENCE)}. Durable: none lost in {NEEDED_STATES} states of a power cut or more, if the control, a"
    " writer that never flushes, did lose in them."
)
MODEL = (
    "States of a disk are rebuilt from QEMU's log of the writes to it: the log up to some"
    " write, in the order in which QEMU completed them, or the same with writes after the last flush missing, or torn"
    " at 4 KiB. Not modelled: the drive's own cache, for a flush is believed to have reached the disk{}. States of one"
    " log depend on each other: a bound speaks of the states of these logs, not of all power cuts."
)
OF_GUESTS = "; and what the host's file system or volume does below the image"
OF_OUTER = (
    "A nested VM's host is the outer VM: that one loses its power, and the log is of its disk, an ext4 file system on"
    " a plain disk; other file systems and volumes of a host are not tried."
)
OF_HOST = (
    "A stack cut is the same of the host's own disks: a lab logged all that reached them, and in each state the volume"
    " or pool, the file system and the image on it were put together again, with what they replay, before the guest's"
    " disk was read. What the host does with a flush is tried; the drive's own cache is not."
)
OF_SEVERAL = (
    "RAIDZ1 is on several disks, each with a log of its own: its states are of moments at which none of these logs"
    " grew, so all disks had at once what they have there; on each, writes after its own last flush may be missing."
    " Which disk is gone, where one is, is drawn for each state."
)
OF_REAL = (
    "In a real cut the host under test lost its power while a guest on it wrote, by the command of --power-cut, and the"
    " guest's disk was read once the host was back. Nothing is modelled: drives, controllers and all that lies between"
    " them and the guest are tried as they are; each cut is one state. Where the host is a lab, its power is its QEMU,"
    " and a lab's disks have no cache of their own."
)
EMULATED = "An emulated CPU makes the writers slow; what their flushes promise is the same."
STATES: dict[str, tuple[str, Kind]] = {  # answer -> text in tables
    "yes": ("yes", "good"),
    "no": ("no", "bad"),
    "not shown": ("not shown", "doubt"),
}
MOST_NAMES = 3


def section(analysis: Analysis) -> Section | None:
    """None for a run that did not try it."""
    found = analysis.survival
    if found is None:
        return None
    blocks: list[Block] = [
        _table(found, analysis),
        *(Paragraph(text, "warning") for text in _doubts(found)),
        *((Paragraph(found.proof),) if found.shows_losses else ()),
        *_notes(found),
        *((Paragraph(EMULATED, "note"),) if analysis.emulated & {one.treatment for one in found.evidence} else ()),
        Folded("Why, configuration by configuration", (_reasons(found),), Detail.FULL),
        Folded(EACH, (_writers(found),), Detail.FULL),
    ]
    return Section("durability", TITLE, tuple(blocks), TITLE)


def headline(found: Survival, plan: Json) -> str:
    """One sentence about all configurations. `plan`: the run's; factors with a single level are in no name."""
    if len(found.evidence) == 1:
        (one,) = found.evidence
        factors: Mapping[str, Sequence[str]] = plan.get("factors") or {}
        named = ", ".join(f"{name}={levels[0]}" for name, levels in factors.items() if len(levels) == 1)
        return f"{one.treatment}{f' ({named})' if named else ''} is {IN_WORDS[one.state]}: {one.reason}."
    yes, no, unclear = found.of("yes"), found.of("no"), found.of("not shown")
    parts = (
        f"{len(yes)} lost nothing in any state of a power cut" if yes else "",
        f"{len(no)} lost acknowledged data ({_and(no)})" if no else "",
        f"{len(unclear)} {'is' if len(unclear) == 1 else 'are'} not shown to be durable" if unclear else "",
    )
    return f"Of {len(found.evidence)} configurations, {'; '.join(filter(None, parts))}."


def news(analysis: Analysis) -> tuple[str, ...]:
    """What a first screen begins with: the result, if the run is about nothing else, and contradictions to
    documentation.
    """
    found = analysis.survival
    if found is None:
        return ()
    return (*((headline(found, analysis.experiment.plan),) if is_all(analysis) else ()), *found.disagreements)


def lead(analysis: Analysis) -> Section | None:
    """The same for other reports."""
    texts, first = news(analysis), is_all(analysis)
    blocks = tuple(Paragraph(text, "warning" if n or not first else "headline") for n, text in enumerate(texts))
    return Section("survived", "", blocks, place="first") if blocks else None


def is_all(analysis: Analysis) -> bool:
    """Whether the run tried durability and compares nothing."""
    return analysis.survival is not None and not analysis.comparisons


def evidence(analysis: Analysis) -> tuple[Section, ...]:
    """Everything that a run knows about it, by configuration; () for a run that did not try it."""
    found = analysis.survival
    if found is None:
        return ()
    each = (_each(one, analysis, number) for number, one in enumerate(found.evidence))
    return (_whole(found, analysis.experiment.plan), *each, Section("reading", "How to read it", tuple(_notes(found))))


def _whole(found: Survival, plan: Json) -> Section:
    proof = (found.proof,) if found.shows_losses else ()
    texts = (headline(found, plan), *found.disagreements, *_doubts(found), *proof)
    return Section("trials", "What the trials show", (listed(texts),))


def _notes(found: Survival) -> Iterator[Paragraph]:
    yield Paragraph(READING, "note")
    nested = [one for one in found.evidence if one.end(HOST_CUT) is not None]
    whole = [one for one in found.evidence if one.end(STACK_CUT) is not None]
    if {*REBUILT} & {*found.ends}:
        has_unseen = len(nested) + len(whole) < len(found.evidence)
        yield Paragraph(MODEL.format(OF_GUESTS if has_unseen else ""), "note")
    if nested:
        yield Paragraph(OF_OUTER, "note")
    if whole:
        yield Paragraph(OF_HOST, "note")
    if REAL_CUT in found.ends:
        yield Paragraph(OF_REAL, "note")
    if any(end.without_disk for one in whole for end in one.ends):
        yield Paragraph(OF_SEVERAL, "note")


def _each(one: Evidence, analysis: Analysis, number: int) -> Section:
    """The evidence for one configuration."""
    known, ends = one.documented, [end.end for end in one.ends]
    texts = (
        ("Durable", (f"{STATES[one.state][0]}: {one.reason}.",)),
        ("Documented", (f"{known.state}: {known.words}.",)),
        *((("Failed", (f"{count_of(one.failed, 'trial')} without a result.",)),) if one.failed else ()),
    )
    table = Table(EACH, _writer_columns(ends), tuple(_writer_rows(one, ends)), "settings")
    name = f"{one.treatment}{', emulated' if one.treatment in analysis.emulated else ''}"
    return Section(f"evidence-{number}", name, (Sentences(texts), table))


def _doubts(found: Survival) -> Iterator[str]:
    """Reasons why the trials prove less than they seem to."""
    if found.blind:
        yield (
            f"The control of {_and(found.blind)}, which never flushes, lost nothing either: {_these(found.blind)} prove"
            " nothing, for they would not have noticed a loss."
        )
    if not found.shows_losses:
        yield found.proof


def _these(blind: Sequence[Evidence]) -> str:
    return "its trials" if len(blind) == 1 else "their trials"


def _table(found: Survival, analysis: Analysis) -> Table:
    names = _names(found, analysis)
    columns = (
        Column("configuration"),
        Column("durable", words=True),
        Column("documented", words=True),
        *(Column(HEADS.get(end, end)) for end in found.ends),
        Column("control"),
        Column("damage", words=True, spare=True),
    )
    rows = tuple(
        Row(
            (
                name_cell(names[one.treatment], emulated=one.treatment in analysis.emulated, title=one.treatment),
                _state_cell(one),
                _documented_cell(one),
                *(_count_cell(one.end(end)) for end in found.ends),
                _control_cell(one),
                _damage_cell(one),
            )
        )
        for one in found.evidence
    )
    return Table(TITLE, columns, rows, "settings wrapped")


def _names(found: Survival, analysis: Analysis) -> dict[str, str]:
    """Short names for narrow tables: the levels that differ, "cache=unsafe"; or the treatment's name if that is
    shorter.
    """
    members = [t for t in analysis.experiment.treatments if found.named(t.name)]
    factors = varying(members)
    words = factor_words(factors)
    short = {
        t.name: " ".join(f"{words[name]}={t.levels[name]}" for name in factors if name in t.levels) for t in members
    }
    plain = {t.name: t.name for t in members}
    if len({t.layer for t in members}) > 1 or len(set(short.values())) < len(short) or not all(short.values()):
        return plain
    without_layer = {t.name: t.name.removeprefix(f"{t.layer} ") for t in members}
    return min(short, without_layer, key=lambda names: max(map(len, names.values())))


def _count_cell(end: End | None) -> Cell:
    """With a bound only for cuts of the host: a guest is killed too rarely for one."""
    if end is None or not end.count.states:
        return Cell()
    count = Span(str(end.count), "bad" if end.has_loss else "plain")
    bound = (Span(end.count.short_bound, "interval"),) if end.end in BOUNDED else ()
    return Cell((count, *bound), style="no" if end.has_loss else "")


def _control_cell(one: Evidence) -> Cell:
    """The control of the power cut, or else of what was tried."""
    ends = (one.end(STACK_CUT), one.end(POWER_CUT), one.end(REAL_CUT), *one.ends)
    controls = [end.control for end in ends if end is not None and end.control is not None]
    if not controls:
        return Cell(
            (Span("none", "doubt"),), style="not-shown", title="nothing shows that a loss would have been noticed"
        )
    lost, states = max(controls[0].lost, controls[0].torn), f"{controls[0].states:,}"
    if not lost:
        title = f"of {states} states: a loss would not have been noticed"
        return Cell((Span("lost none", "doubt"),), title, style="not-shown")
    return Cell((Span(f"lost {lost:,}"),), f"of {states} states, as it must")


def _damage_cell(one: Evidence) -> Cell:
    file_systems = sum(end.file_system_damaged for end in one.ends)
    checked = [end.image_damaged for end in one.ends if end.image_damaged is not None]
    texts = [count_of(file_systems, "file system")] if file_systems else []
    texts += [count_of(sum(checked), "image")] if any(checked) else []
    if not texts:
        return Cell((Span("none"),), "" if checked else "the image has no structure of its own to check")
    return Cell((Span(", ".join(texts), "bad"),), style="no")


def _state_cell(one: Evidence) -> Cell:
    word, kind = STATES[one.state]
    return Cell((Span(word, kind),), one.reason, style="" if one.state == "yes" else one.state.replace(" ", "-"))


def _documented_cell(one: Evidence) -> Cell:
    known = one.documented
    word = "?" if known.state == "not tried" else known.state
    text = Span(f"{word}: disagrees", "bad") if one.disagreement else Span(word)
    return Cell((text,), f"{known.words} ({known.how})", style="no" if one.disagreement else "")


def _reasons(found: Survival) -> List:
    return listed(f"{one.treatment}: {STATES[one.state][0]}; {one.reason}." for one in found.evidence)


def _writers(found: Survival) -> Table:
    """All writers of all configurations."""
    rows: list[Row] = []
    for one in found.evidence:
        rows += (Row((name_cell(one.treatment),)), *_writer_rows(one, found.ends))
    return Table(EACH, _writer_columns(found.ends), tuple(rows), "settings")


def _writer_columns(ends: Sequence[str]) -> tuple[Column, ...]:
    """For each kind of end the losses; for a power cut also torn records and the bound."""
    more = dict.fromkeys(REBUILT, (Column("torn"), Column("share lost")))
    return (Column("writer"), *(column for end in ends for column in (Column(HEADS.get(end, end)), *more.get(end, ()))))


def _writer_rows(one: Evidence, ends: Sequence[str]) -> Iterator[Row]:
    """The writers that count, then the control."""
    there = {end.end: end for end in one.ends}
    judged = dict.fromkeys(writer.name for end in one.ends for writer in end.writers)
    for name in (*judged, CONTROL):
        cells = [cell for end in ends for cell in _writer_cells(there.get(end), end, name)]
        if any(cell.pieces for cell in cells):
            yield Row((name_cell(f"{name} (never flushes)" if name == CONTROL else name), *cells))


def _writer_cells(end: End | None, kind: str, name: str) -> Iterator[Cell]:
    writers = () if end is None else (*end.writers, *((end.control,) if end.control else ()))
    writer = next((writer for writer in writers if writer.name == name and writer.states), None)
    is_cut = kind in REBUILT
    if writer is None:
        yield from (Cell() for _ in range(3 if is_cut else 1))
        return
    bad: Kind = "bad" if writer.has_loss and name != CONTROL else "plain"
    torn = f", {writer.torn:,} torn" if writer.torn and not is_cut else ""
    yield Cell((Span(f"{writer.missing}{torn}", bad),))
    if is_cut:
        yield Cell((Span(f"{writer.torn:,}", bad if writer.torn else "plain"),))
        yield Cell((Span(writer.missing.short_bound),))


def _and(found: Sequence[Evidence]) -> str:
    return ", ".join(at_most(MOST_NAMES, [one.treatment for one in found]))
