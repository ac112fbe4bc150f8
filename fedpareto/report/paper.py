"""Pages to read and to print: html without script, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any


class Html(str):
    """Text that is html already."""

    __slots__ = ()


def safe(value: Any) -> Html:
    """Return a value as html; what is not html yet is escaped."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def sheet(title: str, body: str, head: str = "") -> Html:
    """Return a whole page around its body, with the style it needs."""
    style = files("fedpareto.report").joinpath("paper.css").read_text("utf-8")
    return Html(
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{head}\n<title>{safe(title)} · fedpareto</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<h1>{safe(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def paragraph(text: Any, kind: str = "") -> Html:
    return Html(f'<p class="{kind}">{safe(text)}</p>\n' if kind else f"<p>{safe(text)}</p>\n")


def section(title: str, *parts: str) -> Html:
    return Html(f"<section>\n<h2>{safe(title)}</h2>\n{''.join(parts)}</section>\n")


def bullets(lines: Iterable[Any]) -> Html:
    items = "".join(f"<li>{safe(line)}</li>\n" for line in lines)
    return Html(f"<ul>\n{items}</ul>\n" if items else "")


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
        cells = "".join(
            cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in map(safe, row)
        )
        lines.append(f'<tr class="chosen">{cells}</tr>' if i == chosen else f"<tr>{cells}</tr>")
    above = f"<caption>{safe(caption)}</caption>" if caption else ""
    return Html(
        f'<div class="scroll"><table class="{kind}">{above}<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>\n"
    )


def cell(value: Any, below: Any = "", best: bool = False) -> Html:
    """Return a cell with smaller words below its value."""
    small = f"<small>{safe(below)}</small>" if below else ""
    return Html(
        f'<td class="best">{safe(value)}{small}</td>' if best else f"<td>{safe(value)}{small}</td>"
    )


def preformatted(text: str) -> Html:
    return Html(f"<pre>{safe(text)}</pre>\n")


def code(text: str) -> Html:
    return Html(f"<code>{safe(text)}</code>")
