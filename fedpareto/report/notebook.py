"""A study in a notebook: the front as a picture and a table, as a pandas table, as axes."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from fedpareto.errors import MissingPackage, SettingError, did_you_mean
from fedpareto.report.against import against
from fedpareto.report.evidence import drawing
from fedpareto.report.figures import PLOTS, has_data
from fedpareto.report.paper import Html, bullets, paragraph, table
from fedpareto.report.points import View
from fedpareto.report.privacy import epsilon_heading, epsilon_text, statements
from fedpareto.report.text import as_rows, column, proxies, shown, summary, thinned
from fedpareto.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


def html_of(seen: View) -> str:
    """Return a study's front as html that keeps its style to itself."""
    style = files("fedpareto.report").joinpath("paper.css").read_text("utf-8")
    around = "& { background: var(--back); color: var(--text); padding: 12px; }"
    own = f"{style.replace(':root', '&')} {around}"
    body: str = paragraph(summary(seen))
    if seen.front:
        body += drawing(seen, seen.recommended) + _front(seen)
    body += bullets([seen.why, *against(seen), *proxies(seen.judges), *statements(seen)])
    return f'<style>.fedpareto {{ {own} }}</style><div class="fedpareto">{body}</div>'


def _front(seen: View) -> Html:
    """Return the front as a table; the recommended point stands out."""
    points = thinned(seen, 12)
    names = [*(points[0].settings if points else ())]
    true = epsilon_heading(seen)
    rows = [
        [
            p.trial,
            *(shown(o, p.judged[o.name]) for o in seen.judges),
            *(epsilon_text(p.measures.get("epsilon")) for _ in true),
            *(short(p.settings[name]) for name in names),
        ]
        for p in points
    ]
    star = points.index(seen.recommended) if seen.recommended in points else None
    return table(["trial", *map(column, seen.judges), *true, *names], rows, chosen=star)


def frame_of(seen: View) -> DataFrame:
    """Return all points as a pandas table."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise MissingPackage("pandas", "notebook", "a table of pandas") from None
    headings, rows = as_rows(seen, seen.points)
    out = DataFrame(rows, columns=headings)
    front = set(map(id, seen.front))
    out["on_front"] = [id(p) in front for p in seen.points]
    out["recommended"] = [p is seen.recommended for p in seen.points]
    return out


def drawn(seen: View, plot: str, axes: Axes | None) -> Axes:
    """Draw one of the plots on axes, new ones if none are given, and return them."""
    if plot not in PLOTS:
        raise SettingError(
            f"plot: must be one of {', '.join(PLOTS)}, found {plot!r}. {did_you_mean(plot, PLOTS)}"
        )
    if not has_data(plot, seen):
        raise SettingError(f"plot: the study must have what {plot} shows, found nothing of it.")
    if axes is None:
        axes = _new_axes()
    PLOTS[plot](axes, seen)
    return axes


def _new_axes() -> Axes:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingPackage("matplotlib", "figures", "drawing figures") from None
    return pyplot.subplots(figsize=(7.2, 4.6), layout="constrained")[1]
