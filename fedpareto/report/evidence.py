"""Evidence of a study on one page to print: what was asked, searched, chosen and promised."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.federation import MEASURES, Federation
from fedpareto.files import write_again
from fedpareto.problem import Judge, Limit, is_private
from fedpareto.report.again import again, run_again, signed
from fedpareto.report.audits import lines
from fedpareto.report.caveats import not_guaranteed, threat
from fedpareto.report.choose import Point, pick
from fedpareto.report.chosen import choice, guarantee
from fedpareto.report.paper import (
    Html,
    bullets,
    code,
    paragraph,
    preformatted,
    section,
    sheet,
    table,
)
from fedpareto.report.points import Deals, View, by_budget, split_table
from fedpareto.report.privacy import (
    NO_SPLIT,
    epsilon_heading,
    epsilon_text,
    terms_of,
)
from fedpareto.report.svg import Series, chart, figure, legend
from fedpareto.report.text import column, package_versions, shown, summary, thinned
from fedpareto.space import range_text
from fedpareto.study.write import fixed_study
from fedpareto.trials import Trial
from fedpareto.words import in_shell

MOST_DRAWN = 800  # trials beside the front, so that the page stays small


def evidence(
    seen: View,
    trials: Sequence[Trial],
    limits: Mapping[str, float] | None = None,
    prefer: str | None = None,
) -> str:
    """Return the evidence of a study as one page of html that needs no script and no network.

    The choice is the recommended point, or with limits or a preference what `pick` takes.
    """
    point: Point | None = seen.recommended
    why = seen.why
    if limits or prefer:
        point, why = pick(seen, limits or {}, prefer)
    parts = [
        paragraph(summary(seen), "note"),
        _question(seen),
        _data(seen),
        _threat(seen),
        _searched(seen),
        _front(seen, point),
        choice(seen, point, why, limits or {}),
        guarantee(seen, point),
        section("What is not guaranteed", bullets(not_guaranteed(seen, point))),
        *([section("What attacks found", bullets(found))] if (found := lines(seen, point)) else []),
        _reproduce(seen, trials, limits or {}, prefer),
        _ready(seen, point),
        signed(),
    ]
    return sheet(f"Evidence: {seen.study.name}", "".join(parts))


def write_evidence(
    seen: View,
    trials: Sequence[Trial],
    path: Path,
    limits: Mapping[str, float] | None = None,
    prefer: str | None = None,
) -> Path:
    """Write the evidence and return its path."""
    text = evidence(seen, trials, limits, prefer)
    write_again(path, text.encode(), "page")
    return path


def rows_sha256(trials: Sequence[Trial]) -> str:
    """Return the SHA-256 of all finished trials, in the order proposed.

    What is hashed is one line of JSON for each, keys sorted.
    """
    digest = hashlib.sha256()
    for trial in trials:
        if trial.state != "pending":
            line = json.dumps(asdict(trial), sort_keys=True, ensure_ascii=False)
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _question(seen: View) -> Html:
    """Return what was asked: each objective, what it is, its limit and its kind."""
    rows = []
    for o in seen.judges:
        known = MEASURES.get(o.measure)
        what = f"{o.measure}: {known.help}" if known else o.measure
        limit = "none" if o.limit is None else f"≤ {o.limit:g}"
        kind = f"{_kind(o)}, limited alone" if isinstance(o, Limit) else _kind(o)
        rows.append((o.name, what, limit, kind))
    beside = ""
    if any(isinstance(o, Limit) for o in seen.judges):
        beside = " What is limited alone must hold its limit, and need not be smaller."
    return section(
        "The question",
        paragraph(
            "Which settings give the best trade-offs between these numbers, all to be small?"
            + beside
        ),
        table(("objective", "what it is", "limit", "kind"), rows, kind="words"),
    )


def _kind(objective: Judge) -> str:
    """Say whether an objective or a limit is a proxy, a true ε or simply measured."""
    if objective.proxy:
        return f"proxy: {objective.proxy}"
    return "true ε" if objective.measure.startswith("epsilon") else "measured"


def _data(seen: View) -> Html:
    """Return what was trained on, who held it, and whether it is private."""
    data = seen.study.description.get("data", {})
    if not data:
        return section("Data", paragraph("A problem given in Python; it names no data."))
    split = split_table(seen)
    held = ""
    problem = seen.study.problem
    if split is not None and isinstance(problem, Deals):
        held = f" {problem.examples():,} training examples"
        held += f" of {split.shape[1]} classes." if split.shape[1] > 1 else "."
    dealt = data["split"]
    if dealt in ("dirichlet", "unequal"):
        dealt += f" (alpha {data['alpha']:g})"
    whose = "Public or made-up, as the study says: what rests on that is told with the guarantee."
    if is_private(seen.study.problem):
        whose = f"The search trained on private data, and its price is stated below. {NO_SPLIT}"
    what = (
        f"{data['name']}, dealt to {data['clients']:,} clients: {dealt}; "
        f"share used {data['share']:g}.{held}{_standardised(data)}"
    )
    return section("Data", paragraph(what), paragraph(whose))


def _standardised(data: Mapping[str, Any]) -> str:
    """Say by what inputs are brought to one scale."""
    how = data.get("standardise", "")
    if not how:
        return ""
    own = how == "site"
    by = "each site's own training records" if own else f"{how}, which is taken to be public"
    return f" Inputs are standardised by {by}."


def _threat(seen: View) -> Html:
    """Return who looks on, and what is to be hidden from them."""
    terms = terms_of(seen)
    if terms is None:
        return section(
            "Threat model", paragraph("None is stated: the problem knows no privacy terms.")
        )
    problem = seen.study.problem
    by_steps = isinstance(problem, Federation) and problem.hides_records
    return section("Threat model", *map(paragraph, threat(terms, by_steps)))


def _searched(seen: View) -> Html:
    """Return which settings were searched and which held fixed, by which optimizer, how long."""
    study = seen.study
    rows = [(v.name, range_text(v)) for v in study.problem.space.variables]
    optimizer = study.description.get("optimizer", {"name": type(study.optimizer).__name__})
    settings = ", ".join(f"{k} = {v}" for k, v in optimizer.items() if k != "name")
    how = f" ({settings})" if settings else ""
    ran = (
        f"{optimizer['name']}{how} proposed {seen.evaluations} trials, {len(seen.failed)} of which "
        f"failed, of a budget of {study.budget}; each was trained {_times(seen)}, seed "
        f"{study.seed}. {_drawn(seen)}"
    )
    fixed = {
        f"{part}.{k}": v
        for part in ("model", "training", "local", "mechanism", "server")
        for k, v in study.description.get(part, {}).items()
        if not isinstance(v, dict | list) and v is not None
    }
    parts = [paragraph(ran), table(("setting", "searched over"), rows, kind="words")]
    if fixed:
        values = ", ".join(f"{k} = {v}" for k, v in fixed.items())
        parts.append(paragraph(f"Held fixed: {values}.", "note"))
    return section("What was searched", *parts)


def _drawn(seen: View) -> str:
    """Say what trainings share of their random numbers."""
    problem = seen.study.problem
    if is_private(problem):
        return (
            "The split is the same in every training; start, cohorts, mini-batches and noise are "
            "each training's own, from the seed and a secret in the database."
        )
    differ = "start, mini-batches and noise; repeat r of every trial has the same."
    if isinstance(problem, Federation) and problem.deals_once:
        return f"The split is the same in every training. Repeats differ in {differ}"
    return f"Repeats differ in split, {differ}"


def _times(seen: View) -> str:
    """Return how often each trial was trained; where that differs, also how often in all."""
    most = seen.study.repeats
    times = f"{most} times" if most > 1 else "1 time"
    if seen.trainings == most * seen.evaluations:
        return times
    return f"at most {times}, {seen.trainings} trainings in all"


def _front(seen: View, chosen: Point | None) -> Html:
    if not seen.front:
        return section("The front", paragraph("Nothing was measured."))
    points = thinned(seen, 12)
    if chosen is not None and chosen not in points:
        points = [*points, chosen]
    extra = epsilon_heading(seen)
    rows = [
        [
            p.trial,
            *(shown(o, p.judged[o.name]) for o in seen.judges),
            *[epsilon_text(p.measures.get("epsilon")) for _ in extra],
        ]
        for p in points
    ]
    caption = ""
    if len(points) < len(seen.front):
        caption = f"{len(points)} of {len(seen.front)} points; the chosen one stands out."
    place = points.index(chosen) if chosen in points else None
    heads = ("trial", *map(column, seen.judges), *extra)
    return section("The front", drawing(seen, chosen), table(heads, rows, caption, chosen=place))


def drawing(seen: View, chosen: Point | None) -> Html:
    """Return a chart of the trials and the front on the first two objectives.

    With a third objective, there is a front for each of three budgets of it.
    """
    if len(seen.objectives) < 2:
        return Html("")
    y, x = seen.objectives[:2]

    def series(
        label: str, points: Sequence[Point], colour: int, line: str = "", faint: bool = False
    ) -> Series:
        ordered = sorted(points, key=lambda p: p.objectives[x.name])
        words = [
            f"trial {p.trial}: "
            + ", ".join(f"{o.name} {shown(o, p.objectives[o.name])}" for o in seen.objectives)
            for p in ordered
        ]
        return Series(
            label,
            [p.objectives[x.name] for p in ordered],
            [p.objectives[y.name] for p in ordered],
            colour,
            words,
            line,
            faint=faint,
        )

    front = set(map(id, seen.front))
    others = [p for p in seen.points if id(p) not in front]
    step = -(-len(others) // MOST_DRAWN) or 1
    drawn = [
        series(
            "other trials" if step == 1 else f"one in {step} of the other trials",
            others[::step],
            6,
            faint=True,
        )
    ]
    drawn += [series(label, points, i, "step") for i, (label, points) in enumerate(_curves(seen))]
    ring = (chosen.objectives[x.name], chosen.objectives[y.name]) if chosen else None
    what = f"{y.name} against {x.name}: {len(seen.points)} trials, {len(seen.front)} on the front"
    return figure(
        legend(drawn) + chart(drawn, column(x), column(y), what, (x.limit, y.limit), ring),
        "Dashed: limits. Ringed: the choice." if chosen else "Dashed: limits.",
    )


def _curves(seen: View) -> list[tuple[str, Sequence[Point]]]:
    if len(seen.objectives) < 3:
        return [("Pareto front", seen.front)]
    third = seen.objectives[2]
    return [
        (f"front with {third.name} ≤ {shown(third, budget)}", points)
        for budget, points in by_budget(seen)
    ]


def _reproduce(
    seen: View, trials: Sequence[Trial], limits: Mapping[str, float], prefer: str | None
) -> Html:
    path = seen.study.path
    rows: list[tuple[str, Any]] = [
        ("fedpareto", __version__),
        ("Python", platform.python_version()),
    ]
    rows += [(name, found or "not installed") for name, found in package_versions().items()]
    if path is not None:
        rows.append(
            (f"SHA-256 of {path.name}", code(hashlib.sha256(path.read_bytes()).hexdigest()))
        )
    rows.append(("SHA-256 of the rows", code(rows_sha256(trials))))
    name = in_shell(path.name) if path else ""
    commands = [
        run_again(seen, name),
        f"fedpareto verify {name}",
        again(name, limits, prefer),
    ]
    return section(
        "Versions, hashes, and how to repeat it",
        table(("what", "which"), rows, kind="words"),
        paragraph(
            "Versions are those that wrote this page. The rows are every finished trial of the "
            "database: settings, measures, spread, errors. No clock and no path is among them: "
            "equal rows give equal hashes.",
            "note",
        ),
        preformatted("\n".join(commands)) if path else "",
    )


def _ready(seen: View, point: Point | None) -> Html:
    if point is None or not {"training", "mechanism", "model"} <= set(seen.study.description):
        return Html("")
    text = fixed_study(seen.study, point.settings)
    return section(
        "The choice as a study file",
        paragraph("It trains the point again, five times."),
        preformatted(text),
    )
