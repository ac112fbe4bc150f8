"""Commands that run studies, print and check their rows, and pick a point."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpareto.cli.base import (
    cli,
    console,
    db_option,
    inputs_of,
    json_option,
    limit_of,
    look_at,
    looked,
    numbers,
    opened,
    say,
    study_argument,
)
from fedpareto.errors import FedparetoError, SettingError

if TYPE_CHECKING:
    from fedpareto.executors import Executor
    from fedpareto.report import View
    from fedpareto.store import Store
    from fedpareto.study import Study

EXECUTORS = ("here", "ray")  # the words for them, known without loading any


@cli.command()
@study_argument
@db_option
@click.option(
    "--budget", type=int, help="How many trials in all; the study file's own if left out."
)
@click.option(
    "--seed", type=int, help="Where random numbers come from; the study file's own if left out."
)
@click.option(
    "--encrypt",
    is_flag=True,
    help="Run the encryption of the study's mechanism, and do not only charge for it.",
)
@click.option(
    "--on",
    "executor",
    type=click.Choice(EXECUTORS),
    default="here",
    show_default=True,
    help="What trains: this process, or Ray on this machine or a cluster.",
)
@click.option(
    "--address",
    metavar="auto|HOST:PORT",
    help="With --on ray: the cluster; one of its own on this machine if left out.",
)
@click.option("--workers", type=int, help="With --on ray: blocks at once; as many as fit.")
@click.option("--gpus-per-block", type=float, help="With --on ray: GPUs of a block; 0 if left out.")
@click.option("--cpus-per-block", type=int, help="With --on ray: CPUs of a block; 1 if left out.")
@json_option
def run(
    study_file: Path,
    db: Path | None,
    budget: int | None,
    seed: int | None,
    encrypt: bool,
    executor: str,
    as_json: bool,
    **cluster: Any,
) -> None:
    """Run a study to its budget, or go on with it, and report.

    It can be stopped or killed at any time: the same command goes on where it stood. The rows are
    the same, whatever trains them.
    """
    from fedpareto.files import check_output
    from fedpareto.loop import database
    from fedpareto.loop import run as run_study
    from fedpareto.report import write_page
    from fedpareto.report.cost import announced
    from fedpareto.report.progress import progress
    from fedpareto.study import load_study

    study = load_study(study_file, budget, seed, encrypt)
    rows = database(study, db)
    check_output(rows.with_suffix(".html"), "page", inputs_of(study, rows), option="page")
    evaluate = _executor(executor, cluster)
    if executor != "here":
        _say_cost(study, rows, cluster["workers"])
    with announced(study, rows) if executor == "here" else progress(study) as watch:
        store = run_study(study, db, evaluate, watch)
    with store:
        seen = looked(study, store)
        page = write_page(seen, store.path.with_suffix(".html"))
        _print_front(seen, as_json)
        if not as_json:
            _print_rest(seen, store, page)


def _executor(name: str, options: dict[str, Any]) -> Executor:
    """Return what trains, with the options given."""
    from fedpareto.executors import here, on_ray

    given = {key: value for key, value in options.items() if value is not None}
    if name == "here" and given:
        option = next(iter(given)).replace("_", "-")
        raise SettingError(
            f"--{option}: must go with --on ray, found it without. Add --on ray, or leave it out."
        )
    return here if name == "here" else on_ray(**given)


def _say_cost(study: Study, rows: Path, workers: int | None) -> None:
    """Say what is left to train costs, by what was trained so far."""
    from fedpareto.report.cost import cost_left
    from fedpareto.store import Store

    if rows.is_file() and rows.stat().st_size:
        with Store.read(rows) as store:
            store.check(study.identity)
            say(cost_left(study, store, workers), err=True)
    else:
        say(cost_left(study, None, workers), err=True)


@cli.command()
@study_argument
@db_option
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for spreadsheets.")
@click.option(
    "--at",
    metavar="W1,W2,...",
    help="Settings for a preference, a weight per objective, learned from the trials so far.",
)
def front(study_file: Path, db: Path | None, as_json: bool, as_csv: bool, at: str | None) -> None:
    """Print the Pareto front of a study's trials so far."""
    from fedpareto.report.text import front_csv

    if at is not None:
        _print_preferred(study_file, db, at, as_json)
        return
    if as_json and as_csv:
        raise SettingError(
            "front: --json and --csv exclude one another, found both. Leave one out."
        )
    seen = look_at(study_file, db)
    if as_csv:
        say(front_csv(seen), nl=False)
    else:
        _print_front(seen, as_json)
        if seen.front and seen.recommended is None and not as_json:
            say(seen.why)


@cli.command()
@study_argument
@db_option
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="What an objective must not exceed; repeat it.",
)
@click.option(
    "--prefer",
    metavar="NAME",
    help="The objective to make least, or knee; left out, the least loss where a limit is stated.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write the ready study file here.")
@click.option("--force", is_flag=True, help="Let --output replace another study file.")
@json_option
def pick(
    study_file: Path,
    db: Path | None,
    limits: tuple[str, ...],
    prefer: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Choose the best point within limits, as settings and as a ready study file."""
    from fedpareto.files import check_output
    from fedpareto.loop import database
    from fedpareto.report import pick as pick_point
    from fedpareto.report.against import against
    from fedpareto.report.privacy import private_search_cost, promises
    from fedpareto.report.text import as_plain, proxies, shown
    from fedpareto.study.write import fixed_study, write_study

    seen = look_at(study_file, db)
    point, why = pick_point(seen, dict(map(limit_of, limits)), prefer)
    text = fixed_study(seen.study, point.settings)
    if output:
        inputs = inputs_of(seen.study, database(seen.study, db))
        check_output(output, "study", inputs, force=force)
        write_study(output, text)
    searched = private_search_cost(seen)
    if as_json:
        found = {"study": seen.study.name, **as_plain(point), "why": why, "file": text}
        if searched:
            found["search"] = searched
        say(json.dumps(found))
        return
    values = [f"{o.name} {shown(o, point.judged[o.name])}" for o in seen.judges]
    say(f"trial {point.trial}: {', '.join(values)}")
    say(why)
    for line in [*against(seen), *proxies(seen.judges), *promises(seen, point), *searched]:
        say(line)
    settings = [f"  {name} = {value}" for name, value in point.settings.items()]
    say("\nsettings\n" + "\n".join(settings))
    if output:
        say(f"\nstudy file: {output}")
    else:
        say(f"\n# a study file that trains this point five times\n{text}", nl=False)


@cli.command()
@study_argument
@db_option
def verify(study_file: Path, db: Path | None) -> None:
    """Propose every stored trial again from the rows before it, and compare.

    It needs no data, and code of your own only where the optimizer is yours, or asks for what
    follows from a model or mechanism of yours.
    """
    from fedpareto.loop import checkable
    from fedpareto.loop import verify as differing
    from fedpareto.report.cost import proposing_time
    from fedpareto.report.progress import screen_of

    study, store = opened(study_file, db)
    if _needs_code(study):
        store.close()
        say("to propose its trials again needs this study's own code, which must be here", err=True)
        study, store = opened(study_file, db, run_code=True)
    with store:
        say(f"proposing {len(store)} trials again: {proposing_time(store)}", err=True)
        count = checkable(study, store)
        with screen_of(replace(study, budget=max(1, count)), sys.stderr) as screen:
            wrong = list(differing(study, store, lambda done: screen.show(done, "")))
        rest = len(store) - count
    if wrong:
        shown = "".join(f"\n  {line}" for line in wrong[:10])
        raise FedparetoError(
            f"{store.path}: every trial must be what the optimizer proposes, found {len(wrong)} of "
            f"{count} that are not:{shown}"
        )
    which = f"the first {count}" if rest else f"all {count}"
    say(f"{store.path}: {which} proposals follow from the rows before them")
    if rest:
        say(
            f"{rest} more come after trials that are not finished. Run the study, then verify them."
        )


def _needs_code(study: Study) -> bool:
    """Say whether to propose again takes code of the user's own: the optimizer, or what it asks."""
    from fedpareto.federation import Federation, Unseen, known_alike
    from fedpareto.optimizers import AsksWhatIsKnown

    problem, optimizer = study.problem, study.optimizer
    if isinstance(optimizer, Unseen):
        return True
    if not isinstance(optimizer, AsksWhatIsKnown) or not isinstance(problem, Federation):
        return False
    return problem.looked_at and not known_alike(problem)


def _print_front(seen: View, as_json: bool) -> None:
    """Print the front, a summary, and what its numbers promise."""
    from fedpareto.report.against import against
    from fedpareto.report.privacy import NOT_COUNTED, statements
    from fedpareto.report.text import front_data, proxies, summary, table

    if as_json:
        say(json.dumps(front_data(seen)))
        return
    out = console()
    if seen.front:
        out.print(table(seen))
    say(summary(seen))
    lines = [*against(seen), *proxies(seen.judges), *statements(seen)]
    for line in lines:
        say(line)
    if NOT_COUNTED in lines:
        say("If the search trains on private data, say so with private_data = true in [privacy].")


def _print_preferred(study_file: Path, db: Path | None, at: str, as_json: bool) -> None:
    """Print the settings that Pareto set learning finds best for a preference."""
    from fedpareto.loop import preferred
    from fedpareto.words import short

    study, store = opened(study_file, db)
    with store:
        weights = numbers("--at", at)
        settings = preferred(study, store, weights)
    if as_json:
        say(json.dumps({"study": study.name, "at": weights, "settings": settings}))
        return
    say(", ".join(f"{name} = {short(value)}" for name, value in settings.items()))
    say(
        "Learned from the trials so far, and not trained itself: put it into a study file with "
        "budget = 1 to see what it gives."
    )


def _print_rest(seen: View, store: Store, page: Path) -> None:
    """Print the recommended trial, the first failure, and where the files are."""
    from fedpareto.report.privacy import search_price
    from fedpareto.words import short

    if seen.recommended:
        chosen = ", ".join(f"{k} = {short(v)}" for k, v in seen.recommended.settings.items())
        say(f"\nrecommended ★ trial {seen.recommended.trial}: {chosen}")
    say(seen.why)
    if price := search_price(seen):
        say(price)
    if seen.failed:
        first = seen.failed[0]
        more = f" (and {len(seen.failed) - 1} more)" if len(seen.failed) > 1 else ""
        say(f"failed: trial {first.number}: {first.error}{more}")
    saved = seen.study.repeats * seen.evaluations - seen.trainings
    if saved:
        say(f"{seen.trainings} trainings, {saved} fewer than {seen.study.repeats} of each trial")
    say(f"\nstudy  {seen.study.path}\nrows   {store.path}\npage   {page}")
