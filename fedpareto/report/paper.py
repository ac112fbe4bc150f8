"""Parts of html pages without script, for reading and printing; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fedpareto.words import visible_lines

LONG = 40  # lines
PRINTED = "@page { size: A4; margin: 16mm 15mm 18mm; }"


class Html(str):
    """Text that is html already."""

    __slots__ = ()


def safe(value: Any) -> Html:
    """Return a value as html: Html as it is, anything else as escaped text."""
    if isinstance(value, Html):
        return value
    return Html(escape(visible_lines(value)))


def sheet(title: str, body: str, head: str = "") -> Html:
    """Return a whole page with this title and body, and with its style."""
    style = files("fedpareto.report").joinpath("paper.css").read_text("utf-8")
    return Html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" '
        f'content="width=device-width, initial-scale=1">\n{head}\n<title>{safe(title)} · '
        "fedpareto</title>\n"
        f"<style>{PRINTED}\n{style}</style>\n</head>\n<body>\n<h1>{safe(title)}</h1>\n{body}\n</body>\n"
        "</html>\n"
    )


def paragraph(text: Any, kind: str = "") -> Html:
    """Return a paragraph; kind is its class."""
    if kind:
        return Html(f'<p class="{kind}">{safe(text)}</p>\n')
    return Html(f"<p>{safe(text)}</p>\n")


def section(title: str, *parts: str) -> Html:
    """Return a section with a heading."""
    return Html(f"<section>\n<h2>{safe(title)}</h2>\n{''.join(parts)}</section>\n")


def bullets(lines: Iterable[Any]) -> Html:
    """Return a list of lines; nothing if there are none."""
    items = "".join(f"<li>{safe(line)}</li>\n" for line in lines)
    if not items:
        return Html("")
    return Html(f"<ul>\n{items}</ul>\n")


def table(
    head: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    kind: str = "",
    chosen: int | None = None,
) -> Html:
    """Return a table; the row numbered `chosen` stands out."""
    heads = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in head)
    lines = []
    for i, row in enumerate(rows):
        start = '<tr class="chosen">' if i == chosen else "<tr>"
        lines.append(f"{start}{''.join(map(_in_cell, row))}</tr>")
    above = f"<caption>{safe(caption)}</caption>" if caption else ""
    return Html(
        f'<div class="scroll"><table class="{kind}">{above}<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>\n"
    )


def _in_cell(value: Any) -> str:
    """Return a value as a cell of a table, unless it is one already."""
    content = safe(value)
    if content.startswith("<td"):
        return content
    return f"<td>{content}</td>"


def cell(value: Any, below: Any = "", best: bool = False) -> Html:
    """Return a cell with smaller words below its value; the best of a row stands out."""
    start = '<td class="best">' if best else "<td>"
    small = f"<small>{safe(below)}</small>" if below else ""
    return Html(f"{start}{safe(value)}{small}</td>")


def preformatted(text: str) -> Html:
    """Return text whose spaces and line breaks are kept."""
    kind = ' class="long"' if text.count("\n") > LONG else ""  # printed in two columns
    return Html(f"<pre{kind}>{safe(text)}</pre>\n")


def code(text: str) -> Html:
    """Return text as code within a line."""
    return Html(f"<code>{safe(text)}</code>")
