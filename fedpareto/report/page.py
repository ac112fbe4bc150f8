"""A view as one self-contained html page that works offline."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import platform
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.federation import MEASURES, Federation
from fedpareto.files import write_again
from fedpareto.privacy import VIEWS, rounded_up
from fedpareto.problem import Limit, is_private
from fedpareto.report.again import run_again
from fedpareto.report.against import against
from fedpareto.report.against import as_data as baselines
from fedpareto.report.audit_panel import panel
from fedpareto.report.caveats import covered
from fedpareto.report.choose import Point, aim_of
from fedpareto.report.figures import MOST_CLIENTS
from fedpareto.report.glossary import WORDS
from fedpareto.report.importance import FEWEST
from fedpareto.report.importance import as_data as importance
from fedpareto.report.paper import safe
from fedpareto.report.points import Deals, View, split_table
from fedpareto.report.privacy import (
    ABOVE,
    NO_SPLIT,
    SEEN_BY,
    headline,
    search_epsilons,
    search_price,
    statements,
    terms_of,
)
from fedpareto.report.scale import NO_RULE, SCALE
from fedpareto.report.text import column, package_versions, proxies, spread_of, summary
from fedpareto.space import Choice
from fedpareto.study.write import fixed_study, to_toml
from fedpareto.words import in_shell

SCRIPTS = (
    "data.js",
    "charts.js",
    "front.js",
    "parallel.js",
    "slices.js",
    "panels.js",
    "words.js",
    "page.js",
)
MANY = 3000  # points beyond which measures keep four digits, to stay small


def page(seen: View, live: str | None = None) -> str:
    """Return the page as text; a live one asks that address for newer data every second."""
    assets = files("fedpareto.report")
    html, style = (assets.joinpath(name).read_text("utf-8") for name in ("page.html", "page.css"))
    script = "\n".join(assets.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    parts = {
        "title": safe(seen.study.name),
        "style": style,
        "script": script,
        "data": as_json(page_data(seen)),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "live": f' data-live="{safe(live)}"' if live else "",
        "audits": panel(seen),
        "connect": "'self'" if live else "'none'",
    }
    return re.sub(r"{{(\w+)}}", lambda slot: parts[slot[1]], html)


def as_json(data: Mapping[str, Any]) -> str:
    """Return data as JSON that may stand inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<\u2028\u2029\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def page_data(seen: View) -> dict[str, Any]:
    """Return everything the page shows, as plain data."""
    problem = seen.study.problem
    split = split_table(seen)
    packages = ", ".join(
        f"{name} {found}" if found else f"no {name}" for name, found in package_versions().items()
    )
    return {
        "study": seen.study.name,
        "summary": summary(seen),
        "trials": seen.evaluations,
        "budget": seen.study.budget,
        "repeats": seen.study.repeats,
        "proxies": proxies(seen.judges),
        "view": headline(seen),
        "privacy": statements(seen),
        "views": _views(seen),
        "objectives": [
            {
                "name": o.name,
                "heading": column(o),
                "limit": o.limit,
                "reference": o.reference,
                "measure": o.measure,
                "proxy": o.proxy,
                "up": o.measure.startswith("epsilon"),
            }
            for o in seen.objectives
        ],
        "limits": _limits(seen),
        "measures": {
            name: {"help": m.help, "proxy": m.proxy, "worst": m.worst}
            for name, m in MEASURES.items()
            if _measured(seen, name)
        },
        "settings": _settings(seen),
        "points": _columns(seen),
        "failed": [
            {"trial": t.number, "settings": t.settings, "error": t.error} for t in seen.failed
        ],
        "curve": [_digits(v, 8) for v in seen.curve],
        "recommended": seen.recommended.trial if seen.recommended else None,
        "knee": seen.knee.trial if seen.knee else None,
        "why": seen.why,
        "baselines": baselines(seen),
        "against": against(seen),
        "price": search_price(seen),
        "search": _search(seen),
        "split": None if split is None else split[:MOST_CLIENTS].tolist(),
        "clients": None if split is None else _clients(seen),
        "noSplit": NO_SPLIT if is_private(problem) else "",
        "file": to_toml(seen.study.description) if seen.study.description else "",
        "template": _template(seen),
        "studyFile": seen.study.path.name if seen.study.path else "study.toml",
        "commands": _commands(seen),
        "made": f"fedpareto {__version__}, Python {platform.python_version()}, {packages}, "
        f"seed {seen.study.seed}",
        **_explained(seen),
    }


def _explained(seen: View) -> dict[str, Any]:
    """Return what helps to understand the rest: words, published values, which setting matters."""
    return {
        "above": ABOVE,
        "scale": {"points": SCALE, "note": NO_RULE},
        "glossary": WORDS,
        "importance": importance(seen),
        "fewest": FEWEST,
    }


def _clients(seen: View) -> int | None:
    """Return how many clients data are dealt to; None where they are not dealt."""
    problem = seen.study.problem
    return problem.data.clients if isinstance(problem, Deals) else None


def _limits(seen: View) -> list[dict[str, Any]]:
    """Return the limits beside the objectives: what they are called and of which measure."""
    return [
        {
            "name": o.name,
            "heading": column(o),
            "limit": o.limit,
            "measure": o.measure,
            "up": o.measure.startswith("epsilon"),
        }
        for o in seen.judges
        if isinstance(o, Limit)
    ]


def _measured(seen: View, name: str) -> bool:
    return bool(seen.points) and any(name in p.measures for p in (seen.points[0], seen.points[-1]))


def _columns(seen: View) -> dict[str, Any]:
    """Return the points as columns, a single value where all are equal.

    Settings are in full, objectives too unless there are very many, other measures in few digits.
    """
    place = {id(p): i for i, p in enumerate(seen.points)}
    few = len(seen.points) > MANY
    aim = aim_of(seen.study.problem, seen.baselines, seen.points)
    asked, pairs = (
        {o.measure for o in seen.objectives},
        {n for name, m in MEASURES.items() if m.worst for n in (name, m.worst)},
    )
    firsts: set[int] = set()
    return {
        "trial": [p.trial for p in seen.points],
        "feasible": [int(p.feasible) for p in seen.points],
        "runs": _column([p.runs for p in seen.points]),
        "useful": _column([int(aim.useful(p)) for p in seen.points]),
        "front": [place[id(p)] for p in seen.front],
        "recommended": place[id(seen.recommended)] if seen.recommended else None,
        "knee": place.get(id(seen.knee)),
        "early": [i for i, p in enumerate(seen.points) if p.trial in firsts or firsts.add(p.trial)],  # type: ignore[func-returns-value]
        "settings": {
            name: _column([p.settings.get(name) for p in seen.points])
            for name in _names(p.settings for p in seen.points)
        },
        "objectives": {
            o.name: _column([_objective(p.objectives[o.name], few) for p in seen.points])
            for o in seen.objectives
        },
        "measures": {
            name: _column(
                [_rounded(name, p.measures.get(name), 4 if few else 6) for p in seen.points]
            )
            for name in _names(p.measures for p in seen.points)
            if name not in asked
        },
        "spread": {
            name: _column([_spread(p, name, 2 if few else 3) for p in seen.points])
            for name in _names(p.spread for p in seen.points)
            if name in asked or (name in pairs and not few)
        },
    }


def _names(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every name of some tables, in the order in which they come."""
    return list(dict.fromkeys(name for table in tables for name in table))


def _column(values: list[Any]) -> Any:
    """Return a column, or one value where all are equal."""
    return values[0] if values and all(v == values[0] for v in values) else values


def _objective(value: float | None, few: bool) -> float | None:
    """Return an objective in full, or of very many points as precisely as it was trained."""
    found = _finite(value)
    return found if found is None or not few else _digits(found, 7)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _digits(value: float, digits: int) -> float:
    """Return a number with some significant digits; a whole one is an integer, which is shorter."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _rounded(name: str, value: float | None, digits: int) -> float | None:
    """Return a measure with a few digits; an ε rounds up."""
    value = _finite(value)
    if value is None or value == 0:
        return value
    if name.startswith("epsilon"):
        return float(rounded_up(value, digits))
    return _digits(value, digits)


def _spread(point: Point, name: str, digits: int) -> float | None:
    """Return a measure's spread over repeats with a few digits."""
    value = spread_of(point, name)
    return None if value is None else _digits(value, digits)


def _settings(seen: View) -> dict[str, Any]:
    """Return the kind of each setting, and whether it is searched by its logarithm."""
    variables = seen.study.problem.space.variables
    logs = {v.name for v in variables if not isinstance(v, Choice) and v.log}
    first = seen.points[0].settings if seen.points else {}
    return {name: {"kind": _kind(value), "log": name in logs} for name, value in first.items()}


def _kind(value: Any) -> str:
    """Say whether the value of a setting is a choice, a float or an integer."""
    if isinstance(value, bool | str):
        return "choice"
    return "float" if isinstance(value, float) else "integer"


def _search(seen: View) -> dict[str, Any] | None:
    """Return the ε of a search on private data, by view: what holds of every point it shows."""
    if not is_private(seen.study.problem) or headline(seen) is None:
        return None
    found = {view: float(rounded_up(e)) for view, e in search_epsilons(seen).items()}
    return {"epsilon": found, "trials": seen.evaluations}


WHOSE = {  # data that somebody may learn of
    "client": "one client's data",
    "record": "one record of one client",
    "person": "up to {records} records of one person at one client",
}


def _views(seen: View) -> dict[str, Any] | None:
    """Return who may look on, and what a promise covers, where the problem knows an ε."""
    terms = terms_of(seen)
    if terms is None:
        return None
    problem = seen.study.problem
    about = covered(terms)
    return {
        "sees": {view: SEEN_BY[view] for view in VIEWS},
        "about": about,
        "whose": WHOSE[about].format(records=terms.records_per_person),
        "delta": problem.delta if isinstance(problem, Federation) else None,
        "private_data": terms.private_data,
    }


def _template(seen: View) -> str:
    """Return the study file of a picked point, with a slot "⟦name⟧" for each searched setting."""
    if not seen.points or not {"training", "mechanism", "model"} <= set(seen.study.description):
        return ""
    slots = {name: f"⟦{name}⟧" for name in seen.points[0].settings}
    return fixed_study(seen.study, slots)


def _commands(seen: View) -> list[str]:
    if seen.study.path is None:
        return []
    name = in_shell(seen.study.path.name)
    return [
        run_again(seen, name),
        f"fedpareto verify {name}",
    ]


def write_page(seen: View, path: str | Path) -> Path:
    """Write the page and return its path."""
    write_again(Path(path), page(seen).encode(), "page")
    return Path(path)
