"""Evidence: what was asked, searched and chosen, what is promised and what is not, on one page to print and to file."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.federation import MEASURES
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
from fedpareto.report.points import Point, View, by_budget, pick, split_table
from fedpareto.report.privacy import (
    epsilon_heading,
    epsilon_text,
    guarantee_of,
    headline,
    promises,
    search_cost,
)
from fedpareto.report.svg import Series, chart, figure, legend
from fedpareto.report.text import column, package_versions, proxies, short, shown, summary, thinned
from fedpareto.report.toml import fixed_study
from fedpareto.trials import Trial

MOST_DRAWN = 800  # trials beside the front, so that the page stays small

LOOKS_ON = {
    "server": "Clients trust nobody but themselves. The server sees every upload of every round and may try to learn from it; otherwise "
    "it follows the protocol. Only the noise that a client adds before it sends protects that client.",
    "secagg": "The server sees the sum of a round's uploads and who took part, but no upload by itself: a secure aggregation protocol is "
    "taken to hide them. A client is protected by the noise of the whole cohort, so honest clients must add their share.",
    "release": "Onlookers see the models and nothing else. The server, which sees uploads and knows who took part in which round, is "
    "trusted to keep both secret.",
}
HIDDEN = {"client": "everything that one client holds", "record": "one record of one client"}
NEIGHBOUR = {
    "zero_out": "the client's update were left out",
    "replace": "any other stood in its place",
}


def evidence(
    seen: View,
    trials: Sequence[Trial],
    limits: Mapping[str, float] | None = None,
    prefer: str | None = None,
) -> str:
    """Return the evidence of a study as one page of html that needs no script and no network.

    The choice is the recommended point, or with limits or a preference what `pick` takes.
    """
    point, why = (
        (pick(seen, limits or {}, prefer)) if limits or prefer else (seen.recommended, seen.why)
    )
    parts = [
        paragraph(summary(seen), "note"),
        _question(seen),
        _data(seen),
        _threat(seen),
        _searched(seen),
        _front(seen, point),
        _choice(seen, point, why),
        _guarantee(seen, point),
        section("What is not guaranteed", bullets(not_guaranteed(seen, point))),
        _reproduce(seen, trials),
        _ready(seen, point),
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
    path.write_text(evidence(seen, trials, limits, prefer), encoding="utf-8")
    return path


def rows_sha256(trials: Sequence[Trial]) -> str:
    """Return the SHA-256 of all finished trials: one line of JSON each, keys sorted, in the order proposed."""
    digest = hashlib.sha256()
    for trial in trials:
        if trial.state != "pending":
            digest.update(
                json.dumps(asdict(trial), sort_keys=True, ensure_ascii=False).encode() + b"\n"
            )
    return digest.hexdigest()


def _question(seen: View) -> Html:
    rows = []
    for o in seen.objectives:
        known = MEASURES.get(o.measure)
        kind = (
            f"proxy: {o.proxy}"
            if o.proxy
            else "true ε"
            if o.measure.startswith("epsilon")
            else "measured"
        )
        rows.append(
            (
                o.name,
                f"{o.measure}: {known.help}" if known else o.measure,
                "none" if o.limit is None else f"≤ {o.limit:g}",
                kind,
            )
        )
    return section(
        "The question",
        paragraph(
            "Which settings give the best trades between these numbers, all of them to be small?"
        ),
        table(("objective", "what it is", "limit", "kind"), rows, kind="words"),
    )


def _data(seen: View) -> Html:
    told = seen.study.description.get("data", {})
    if not told:
        return section("Data", paragraph("A problem given in Python; it names no data."))
    split = split_table(seen)
    held = (
        f" {int(split.sum()):,} training examples of {split.shape[1]} classes."
        if split is not None
        else ""
    )
    dealt = told["split"] + (
        f" (alpha {told['alpha']:g})" if told["split"] in ("dirichlet", "unequal") else ""
    )
    private = getattr(getattr(seen.study.problem, "privacy", None), "private_data", False)
    whose = (
        "The search trained on private data, and its price is stated below."
        if private
        else "The study says that the search trained on public or made-up data, not on the data to be protected."
    )
    return section(
        "Data",
        paragraph(
            f"{told['name']}, dealt to {told['clients']:,} clients: {dealt}; share used {told['share']:g}.{held}"
        ),
        paragraph(whose),
    )


def _threat(seen: View) -> Html:
    terms = getattr(seen.study.problem, "privacy", None)
    if terms is None:
        return section(
            "Threat model", paragraph("None is stated: the problem knows no privacy terms.")
        )
    lost = (
        f" It counts on {terms.dropouts} dropouts and {terms.colluders} colluders a round."
        if terms.dropouts + terms.colluders
        else ""
    )
    return section(
        "Threat model",
        paragraph(LOOKS_ON[terms.view] + lost),
        paragraph(
            f"To be hidden is {HIDDEN[terms.unit]}: what an onlooker sees should be nearly as likely if "
            f"{NEIGHBOUR['replace' if terms.unit == 'record' else terms.adjacency]}."
        ),
    )


def _searched(seen: View) -> Html:
    study = seen.study
    rows = [(v.name, _range(v)) for v in study.problem.space.variables]
    optimizer = study.description.get("optimizer", {"name": type(study.optimizer).__name__})
    settings = ", ".join(f"{k} = {v}" for k, v in optimizer.items() if k != "name")
    ran = (
        f"{optimizer['name']}{f' ({settings})' if settings else ''} proposed {seen.evaluations} trials, {len(seen.failed)} of which "
        f"failed, of a budget of {study.budget}; each was trained {_times(seen)}, seed "
        f"{study.seed}. Repeats differ in split, start, mini-batches and noise; repeat r of every trial has the same."
    )
    fixed = {
        f"{part}.{k}": v
        for part in ("model", "training", "mechanism")
        for k, v in study.description.get(part, {}).items()
        if not isinstance(v, dict | list) and v is not None
    }
    return section(
        "What was searched",
        paragraph(ran),
        table(("setting", "searched over"), rows, kind="words"),
        paragraph("Held fixed: " + ", ".join(f"{k} = {v}" for k, v in fixed.items()) + ".", "note")
        if fixed
        else "",
    )


def _times(seen: View) -> str:
    """Return how often each trial was trained, and what that came to where it was not as often as can be."""
    most = seen.study.repeats
    times = f"{most} time{'s' if most > 1 else ''}"
    if seen.trainings == most * seen.evaluations:
        return times
    return f"at most {times}, {seen.trainings} trainings in all"


def _range(variable: Any) -> str:
    if hasattr(variable, "choices"):
        return "one of " + ", ".join(map(str, variable.choices))
    scale = ", on a log scale" if getattr(variable, "log", False) else ""
    whole = "whole numbers " if isinstance(variable.low, int) else ""
    return f"{whole}{variable.low:g} to {variable.high:g}{scale}"


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
            *(shown(o, p.objectives[o.name]) for o in seen.objectives),
            *[epsilon_text(p.measures.get("epsilon")) for _ in extra],
        ]
        for p in points
    ]
    caption = (
        f"{len(points)} of {len(seen.front)} points; the chosen one stands out."
        if len(points) < len(seen.front)
        else ""
    )
    place = points.index(chosen) if chosen in points else None
    heads = ("trial", *map(column, seen.objectives), *extra)
    return section("The front", _drawing(seen, chosen), table(heads, rows, caption, chosen=place))


def _drawing(seen: View, chosen: Point | None) -> Html:
    """Return the trials and the front on the first two objectives, one front for each of three budgets of the third."""
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


def _choice(seen: View, point: Point | None, why: str) -> Html:
    if point is None:
        return section("The choice", paragraph("None was made."), paragraph(why))
    rows = [
        (
            column(o),
            shown(o, point.objectives[o.name]),
            short(point.spread[o.measure]) if o.measure in point.spread else "none",
        )
        for o in seen.objectives
    ]
    settings = table(
        ("setting", "value"),
        [(name, repr(value)) for name, value in point.settings.items()],
        kind="words",
    )
    of = (
        f"spread over {point.runs} trainings"
        if point.runs < seen.study.repeats
        else "spread over repeats"
    )
    return section(
        "The choice",
        paragraph(f"Trial {point.trial}. {why}"),
        table(("objective", "value", of), rows),
        settings,
    )


def _guarantee(seen: View, point: Point | None) -> Html:
    lines = (
        [*promises(seen, point), *search_cost(seen)]
        if point is not None and headline(seen) is not None
        else []
    )
    return section("The guarantee, and what it rests on", bullets(lines or ["None is stated."]))


def not_guaranteed(seen: View, point: Point | None) -> list[str]:
    """Return what nobody should read into the rest, in sentences; what does not apply is left out."""
    promised = (
        guarantee_of(seen, point) if point is not None and headline(seen) is not None else None
    )
    terms = getattr(seen.study.problem, "privacy", None)
    lines = (
        []
        if promised
        else ["Differential privacy: no (ε, δ) is promised for the choice, or none was made."]
    )
    lines += [
        f"{line} Nothing follows from it about what an attacker can learn."
        for line in proxies(seen.objectives)
    ]
    if terms is not None and not terms.private_data:
        lines.append(
            "The search: what it trained on is taken to be public. If it was private, choosing by it cost privacy that is counted "
            "nowhere here."
        )
    if promised:
        lines += _of_the_promise(promised.unit)
    lines += [
        "Anything beside the messages that the threat model names: timing, the size and number of messages, who fails or joins when, "
        "logs, memory, error reports, and scores published on private test data.",
        "Clients or servers that break the protocol: poisoned updates, false weights, tampered models. Nothing here was tested "
        "against them, except colluders and dropouts as far as they are counted above.",
    ]
    if "batchcrypt" in json.dumps(seen.study.description.get("mechanism", {})):
        lines.append(
            "Encryption: it hides single uploads from the server, not what their sums and the model tell."
        )
    return [
        *lines,
        "Utility elsewhere: errors, times and sizes were measured in a simulation of this federation on this data and model; "
        "costs in seconds follow a cost model. Confirm the choice where it is to be used.",
        "Facts about many people: differential privacy bounds what is learnt from one of them being in the data, not what the data "
        "as a whole teaches about all.",
    ]


def _of_the_promise(unit: str) -> list[str]:
    level = (
        "Record level: it covers one record. Someone with many records is covered less, and that a client took part is not hidden."
        if unit == "record"
        else "Client level: it covers one client's data as a whole. Clients that belong to one person or group are covered less."
    )
    return [
        "The simulation's own noise: it comes from a seed, so that the study can be repeated, and whoever knows the seed can take it "
        "off. Deployed noise must come from the system's secure randomness, fresh for every client and round, and must not be kept; "
        "floating-point sampling can itself leak, so use an implementation made for it.",
        "Anything but this training: more rounds, another training on the same data, or a larger cohort costs more than is stated.",
        level,
    ]


def _reproduce(seen: View, trials: Sequence[Trial]) -> Html:
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
    name = shlex.quote(path.name) if path else ""
    commands = [
        f"fedpareto {verb}"
        for verb in (
            f"run {name} --seed {seen.study.seed}",
            f"verify {name}",
            f"report {name} --evidence",
        )
    ]
    return section(
        "Versions, hashes, and how to repeat it",
        table(("what", "which"), rows, kind="words"),
        paragraph(
            "Versions are those that wrote this page. The rows are every finished trial of the database: settings, "
            "measures, spread, errors. No clock and no path is among them: equal rows give equal hashes.",
            "note",
        ),
        preformatted("\n".join(commands)) if path else "",
    )


def _ready(seen: View, point: Point | None) -> Html:
    if point is None or not {"training", "mechanism", "model"} <= set(seen.study.description):
        return Html("")
    text = fixed_study(seen.study.description, point.settings, f"{seen.study.name}-pick", repeats=5)
    return section(
        "The choice as a study file",
        paragraph("It trains the point again, five times."),
        preformatted(text),
    )
