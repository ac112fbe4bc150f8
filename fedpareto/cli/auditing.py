"""The command that attacks points of a study, to show what somebody could really see."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpareto.cli.base import (
    cli,
    db_option,
    json_option,
    limit_of,
    looked,
    opened,
    say,
    study_argument,
)
from fedpareto.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from fedpareto.audit import Job, Plan
    from fedpareto.report import Point, View
    from fedpareto.store import Audit

LONGEST = 1e9  # seconds


@cli.command()
@study_argument
@db_option
@click.option("--trial", type=int, help="The trial to attack.")
@click.option("--front", is_flag=True, help="Attack every point of the front: the default.")
@click.option(
    "--attack",
    "attacks",
    metavar="NAME,...",
    help="Which attacks, with commas; your own as package.module:Name; all if left out.",
)
@click.option(
    "--view",
    "views",
    metavar="VIEW,...",
    help="Who looks on, with commas: server, secagg, release; all if left out.",
)
@click.option("--seconds", type=float, help="About how long it may take; less is tried then.")
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the attacks, such as canaries=3000; repeat it.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**62),
    default=0,
    show_default=True,
    help="Where the attacks' random numbers come from; another one repeats them afresh.",
)
@json_option
def audit(
    study_file: Path,
    db: Path | None,
    trial: int | None,
    front: bool,
    attacks: str | None,
    views: str | None,
    seconds: float | None,
    options: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Attack points of a study, and keep what was found.

    It can be stopped at any time: the same command goes on where it stood. An alarm, found twice,
    ends with status 1. A failed attack proves nothing.
    """
    from fedpareto.audit import ATTACKS, attacks_of, plan
    from fedpareto.audit import audit as attack
    from fedpareto.store import Store, last_of

    if trial is not None and front:
        raise SettingError("audit: --trial must stand without --front, found both. Leave one out.")
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise SettingError(
            f"--seconds: must be above 0 and at most {LONGEST:g}, found {seconds:g}."
        )
    settings = dict(map(_setting, options))
    asked_views = _views(views)
    study, store = opened(study_file, db, run_code=True)
    with store:
        chosen = attacks_of(attacks.split(",") if attacks else list(ATTACKS), settings)
        points = _points(looked(study, store), trial)
        done = store.audits()
        path = store.path
    asked = [(p.trial, p.settings) for p in points]
    planned = plan(study.problem, asked, chosen, asked_views, seed, seconds, done)
    _say_before(planned, len(points))
    found: list[Audit] = []
    if planned.jobs:
        with (
            Store.write(path, study.name, study.identity, study.repeats) as writing,
            _bar(planned) as watch,
        ):
            found.extend(attack(planned, seed, writing, watch))
            done = writing.audits()
        _say_after(planned, len(found))
    wanted = [json.dumps([t, s]) for t, s in asked]
    mine = [
        a
        for a in last_of([a for a in done if a.seed == seed])
        if json.dumps([a.trial, a.settings]) in wanted
        and a.attack in chosen
        and a.view in asked_views
    ]
    _print(mine, as_json)
    return 1 if any(a.measures.get("alarm") for a in mine) else 0


def _points(seen: View, trial: int | None) -> list[Point]:
    """Return the points to attack: a trial, or the front and the recommended point on it."""
    if trial is None:
        if not seen.front:
            raise SettingError(f"audit: needs a point on the front, found none. {seen.why}")
        return sorted(seen.front, key=lambda p: p is not seen.recommended)  # that one comes first
    found = [p for p in seen.points if p.trial == trial]
    if not found:
        raise SettingError(
            f"--trial: must be a trial that was measured, found {trial}. `fedpareto front` lists "
            "those on the front."
        )
    return found[:1]


def _views(text: str | None) -> list[str]:
    """Return the views that are asked for."""
    from fedpareto.contract import VIEWS

    found = text.split(",") if text else list(VIEWS)
    for view in found:
        if view not in VIEWS:
            raise SettingError(
                f"--view: must be of {', '.join(VIEWS)}, found {view!r}. "
                f"{did_you_mean(view, VIEWS)}".rstrip()
            )
    return found


def _setting(text: str) -> tuple[str, Any]:
    """Return the name and the number of NAME=VALUE; a whole number as such."""
    name, value = limit_of(text, "--set")
    return name, int(value) if value.is_integer() else value


def _say_before(planned: Plan, points: int) -> None:
    """Say what is attacked, for how long, and what is not."""
    for what, why in planned.without.items():
        say(f"without {what}: {why}", err=True)
    names = list(dict.fromkeys(f"{job.name} ({job.view})" for job in planned.jobs))
    if names:
        say(
            f"attacking {points} {'point' if points == 1 else 'points'}: {', '.join(names)}; about "
            f"{max(1, round(planned.seconds))} s",
            err=True,
        )
    if planned.before:
        say(f"{planned.before} done before; another --seed attacks afresh", err=True)


def _say_after(planned: Plan, found: int) -> None:
    """Say what the time was too short for."""
    left = sum(len(job.points) for job in planned.jobs) - found
    if left:
        say(f"time is up, {left} attacks are left: the same command goes on with them", err=True)


@contextlib.contextmanager
def _bar(planned: Plan) -> Iterator[Callable[[Job], None]]:
    """Show how far the attacks have come; give what to call before each."""
    from fedpareto.problem import listening
    from fedpareto.report.progress import whole

    total = sum(job.seconds for job in planned.jobs) or 1.0
    with whole("audit", total, sys.stderr) as show:
        before, now, what = 0.0, 0.0, ""

        def watch(job: Job) -> None:
            nonlocal before, now, what
            before += now
            now, what = job.seconds, f"{job.name} ({job.view})"
            show(before, what)

        with listening(lambda share: show(before + share * now, what)):
            yield watch
        show(before + now, what)


def _print(found: list[Audit], as_json: bool) -> None:
    """Print what attacks found, as JSON or line by line."""
    from fedpareto.audit.words import NO_PROOF, sentence
    from fedpareto.store.audits import finite

    if as_json:
        rows = [
            {"trial": a.trial, "attack": a.attack, "view": a.view, "measures": finite(a.measures)}
            for a in found
        ]
        say(json.dumps({"audits": rows}))
        return
    for a in found:
        say(f"trial {a.trial:<4d} {a.attack}, {a.view}: {sentence(a.measures)}")
    if found:
        say(NO_PROOF)
