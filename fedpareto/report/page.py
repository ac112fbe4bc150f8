"""A view as one self-contained html page that works offline."""

from __future__ import annotations

import json
import platform
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.report.figures import MOST_CLIENTS
from fedpareto.report.points import View, split_table
from fedpareto.report.privacy import headline, statements
from fedpareto.report.text import as_plain, column, proxies, summary
from fedpareto.report.toml import to_toml


def page(seen: View) -> str:
    """Return the page as text."""
    assets = files("fedpareto.report")
    html, style, script = (assets.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    data = json.dumps(page_data(seen), ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "").replace("\u2029", "")
    parts = {"title": escape(seen.study.name), "style": style, "script": script, "data": data}
    return re.sub(r"{{(\w+)}}", lambda slot: parts[slot[1]], html)


def page_data(seen: View) -> dict[str, Any]:
    """Return everything the page shows, as plain data."""
    front = set(map(id, seen.front))
    split = split_table(seen)
    return {
        "study": seen.study.name,
        "summary": summary(seen),
        "proxies": proxies(seen.objectives),
        "view": headline(seen),
        "privacy": statements(seen),
        "objectives": [{"name": o.name, "heading": column(o), "limit": o.limit, "reference": o.reference,
                        "up": o.measure.startswith("epsilon")}
                       for o in seen.objectives],
        "points": [as_plain(p) | {"front": id(p) in front, "recommended": p is seen.recommended} for p in seen.points],
        "failed": [{"trial": t.number, "settings": t.settings, "error": t.error} for t in seen.failed],
        "curve": seen.curve,
        "recommended": seen.recommended.trial if seen.recommended else None,
        "why": seen.why,
        "split": None if split is None else split[:MOST_CLIENTS].tolist(),
        "clients": None if split is None else len(split),
        "file": to_toml(seen.study.description) if seen.study.description else "",
        "made": f"fedpareto {__version__}, Python {platform.python_version()}, seed {seen.study.seed}",
    }


def write_page(seen: View, path: str | Path) -> Path:
    """Write the page and return its path."""
    Path(path).write_text(page(seen), encoding="utf-8")
    return Path(path)
