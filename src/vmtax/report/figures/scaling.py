"""The total rate of several machines over their number: one picture per figure, with the ideal as a line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from markupsafe import Markup

from vmtax.analysis.at_once import AtOnce, Scaling, scaling
from vmtax.core.records import Metric
from vmtax.report.figures.svg import Axis, across, curve, drawing, element, emulation, mark, spaced, upright
from vmtax.report.picture import Key, Picture
from vmtax.report.wording.layers import STYLES
from vmtax.workload.words import name

HEIGHT = 220
IDEAL = Key("line", "muted", "ideal: none costs another anything", "1 4")
MOST = 8  # steps of the vertical axis


def scaling_pictures(rates: Sequence[AtOnce], emulated: Collection[str]) -> tuple[Picture, ...]:
    """One picture for each figure for which the rate of a single machine is known, too."""
    metrics = dict.fromkeys(rate.metric for rate in rates if rate.metric.better == "higher")
    found = ((metric, scaling([rate for rate in rates if rate.metric == metric], emulated)) for metric in metrics)
    return tuple(_picture(number, metric, lines) for number, (metric, lines) in enumerate(found, 1) if lines)


def _picture(number: int, metric: Metric, lines: Sequence[Scaling]) -> Picture:
    id, title = f"scaling-{number}", name(metric)
    marked = emulation([line.emulated for line in lines])
    words = "; ".join(map(_in_words, lines))
    alternative = (
        f"{title} of several guests together, as times the rate of one{f', {marked}' if marked else ''}: {words}."
        " The table below holds the figures."
    )
    named = f"{title}{f' ({marked})' if marked else ''}"
    drawn = drawing(id, named, alternative, _drawn(lines), class_="chart curves", height=HEIGHT)
    caption = "Times the rate of one guest alone, over the number of guests that work at the same time."
    legend = (*(_key(line) for line in lines), IDEAL)
    return Picture(id, title, caption, alternative, legend, drawn)


def _in_words(line: Scaling) -> str:
    return f"{line.layer}: " + ", ".join(f"{count} reach {times:.3g} times" for count, times in line.times.items())


def _key(line: Scaling) -> Key:
    style = STYLES[line.layer]
    return Key("line", style.colour, f"{line.layer}{', emulated' if line.emulated else ''}", style.dash)


def _drawn(lines: Sequence[Scaling]) -> Iterator[Markup]:
    counts = sorted({count for line in lines for count in line.times})
    most = counts[-1]
    highest = max(most, *(times for line in lines for times in line.times.values()))
    machines = Axis(1 - 0.04 * most, 1.04 * most, tuple((float(count), str(count)) for count in counts))
    steps = ((float(step), f"{step}×") for step in range(int(highest) + 1))
    times = Axis(0.0, 1.06 * highest, spaced(steps, 0.0, highest, MOST))
    yield from (across(machines), upright(times, 0, HEIGHT))
    ideal = [(machines.at(count), 1 - times.at(count)) for count in (1, most)]
    yield curve(ideal, IDEAL.style, IDEAL.dash, "ideal")
    for line in lines:
        style = STYLES[line.layer]
        points = [(machines.at(count), 1 - times.at(value)) for count, value in line.times.items()]
        yield curve(points, style.colour, style.dash, _in_words(line))
        for (count, value), (x, y) in zip(line.times.items(), points, strict=True):
            tip = element("title", f"{line.layer}, {count}: {value:.3g} times the rate of one")
            yield element("g", tip, mark(style.mark, style.colour, x, HEIGHT * y))
