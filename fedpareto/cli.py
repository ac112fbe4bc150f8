"""The command line: words to calls, nothing else. Imports wait for the verb, so that --help is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fedpareto import __version__
from fedpareto.errors import FedparetoError, MissingPackage, SettingError

if TYPE_CHECKING:
    from fedpareto.report import View
    from fedpareto.store import Store
    from fedpareto.study import Study

F = TypeVar("F", bound=Callable[..., Any])

_study = click.argument("study_file", metavar="STUDY", type=click.Path(path_type=Path))
_db = click.option("--db", type=click.Path(path_type=Path), help="The study's database; STUDY with .db if left out.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """Find the best trades between privacy, utility and cost in federated learning, and choose one."""


@cli.command()
@_study
@_db
@click.option("--budget", type=int, help="How many trials in all; the study file's own if left out.")
@click.option("--seed", type=int, help="Where random numbers come from; the study file's own if left out.")
@click.option("--encrypt", is_flag=True, help="Run the encryption of the study's mechanism, and do not only charge for it.")
@_json
def run(study_file: Path, db: Path | None, budget: int | None, seed: int | None, encrypt: bool, as_json: bool) -> None:
    """Run a study to its budget, or go on with it, and report.

    It can be stopped or killed at any time: the same command goes on where it stood.
    """
    from fedpareto.loop import run as run_study
    from fedpareto.report import write_page
    from fedpareto.report.progress import progress
    from fedpareto.study import load_study

    study = load_study(study_file, budget, seed, encrypt)
    with progress(study) as watch:
        store = run_study(study, db, watch=watch)
    with store:
        seen = _look(study, store)
        page = write_page(seen, store.path.with_suffix(".html"))
        _print_front(seen, as_json)
        if not as_json:
            _print_rest(seen, store, page)


@cli.command()
@_study
@_db
@_json
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for spreadsheets.")
def front(study_file: Path, db: Path | None, as_json: bool, as_csv: bool) -> None:
    """Print the Pareto front of a study's trials so far."""
    from fedpareto.report.text import front_csv

    if as_json and as_csv:
        raise SettingError("front: --json and --csv exclude one another, found both. Leave one out.")
    seen = _open(study_file, db)
    if as_csv:
        click.echo(front_csv(seen), nl=False)
    else:
        _print_front(seen, as_json)


@cli.command()
@_study
@_db
@click.option("--limit", "limits", multiple=True, metavar="NAME=VALUE", help="What an objective must not exceed; repeat it.")
@click.option("--prefer", metavar="NAME", help="The objective to make least; the knee if left out.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the ready study file here.")
@_json
def pick(study_file: Path, db: Path | None, limits: tuple[str, ...], prefer: str | None, output: Path | None,
         as_json: bool) -> None:
    """Choose the best point within limits, as settings and as a ready study file."""
    from fedpareto.report import pick as pick_point
    from fedpareto.report.privacy import promises
    from fedpareto.report.text import as_plain, proxies, shown
    from fedpareto.report.toml import fixed_study

    seen = _open(study_file, db)
    point, why = pick_point(seen, dict(map(_limit, limits)), prefer)
    text = fixed_study(seen.study.description, point.settings, f"{seen.study.name}-pick", repeats=5)
    if output:
        output.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"study": seen.study.name, **as_plain(point), "why": why, "file": text}))
        return
    click.echo(f"trial {point.trial}: " + ", ".join(f"{o.name} {shown(o, point.objectives[o.name])}" for o in seen.objectives))
    click.echo(why)
    for line in [*proxies(seen.objectives), *promises(seen, point)]:
        click.echo(line)
    click.echo("\nsettings\n" + "\n".join(f"  {k} = {v}" for k, v in point.settings.items()))
    ready = f"study file: {output}\n" if output else f"# a study file that trains this point five times\n{text}"
    click.echo(f"\n{ready}", nl=False)


@cli.command()
@_study
@_db
@click.option("--output", type=click.Path(path_type=Path), help="The page; the database's name with .html if left out.")
def report(study_file: Path, db: Path | None, output: Path | None) -> None:
    """Write one self-contained html page, and PNG figures beside it."""
    from fedpareto.loop import database

    seen = _open(study_file, db)
    for path in _write_report(seen, output or database(seen.study, db).with_suffix(".html")):
        click.echo(path)


@cli.command()
@_study
@_db
def verify(study_file: Path, db: Path | None) -> None:
    """Propose every stored trial again from the rows before it, and compare."""
    from fedpareto.loop import verify as differing

    study, store = _opened(study_file, db)
    with store:
        wrong, count = list(differing(study, store)), len(store)
    if wrong:
        shown = "".join(f"\n  {line}" for line in wrong[:10])
        raise FedparetoError(f"{store.path}: every trial must be what the optimizer proposes, found {len(wrong)} of "
                             f"{count} that are not:{shown}")
    click.echo(f"{store.path}: all {count} proposals follow from the rows before them")


@cli.command()
@click.option("--directory", default="", help="Where to look; FEDPARETO_DATA or the user's cache if left out.")
@_json
def data(directory: str, as_json: bool) -> None:
    """List the data sets and whether their files are there."""
    from fedpareto.federation.data import SETS, inventory
    from fedpareto.federation.data import directory as data_directory

    folder = data_directory(directory)
    found = {name: inventory(name, folder) for name in SETS}
    if as_json:
        rows = [{"name": name, "present": files is not None, "files": files or []} for name, files in found.items()]
        click.echo(json.dumps({"directory": str(folder), "data": rows}))
        return
    click.echo(f"data directory: {folder}")
    for name, files in found.items():
        state = "missing; downloaded on first use" if files is None else ", ".join(files) or "embedded"
        click.echo(f"  {name:14s} {state}")


@cli.command()
@_study
@click.option("--write", is_flag=True, help="Put the figures into the study file, in place of its own.")
@_json
def calibrate(study_file: Path, write: bool, as_json: bool) -> None:
    """Measure on this machine what the cost model of a study needs: how long a client's local steps take.

    A study keeps its figures in [cost], so that it gives the same numbers on every machine.
    """
    from fedpareto.federation.calibrate import calibrate as measure
    from fedpareto.report.toml import put_section, to_toml
    from fedpareto.settings import plain
    from fedpareto.study import load_study

    figures = plain(measure(load_study(study_file).problem))  # type: ignore[arg-type]
    if write:
        study_file.write_text(put_section(study_file.read_text("utf-8"), "cost", figures), encoding="utf-8")
    click.echo(json.dumps(figures) if as_json else to_toml({"cost": figures}) + (f"\n\nwritten to {study_file}" if write else ""))


@cli.command()
@click.option("--epsilon", "--target-epsilon", "target_epsilon", type=float, required=True, help="The ε to hold over all rounds.")
@click.option("--delta", "--target-delta", "target_delta", type=float, help="δ; 1e-5, or 1/(10 clients) if that is less.")
@click.option("--clients", type=int, required=True, help="Clients in all, K.")
@click.option("--view", type=click.Choice(["server", "secagg", "release"]), default="server", show_default=True,
              help="Who looks on: a server that sees each upload; sums, and who took part; the models alone.")
@click.option("--sampling", type=click.Choice(["fixed", "poisson"]), default="fixed", show_default=True,
              help="A cohort of fixed size, or each client by its own chance.")
@click.option("--unit", type=click.Choice(["client", "record"]), default="client", show_default=True, help="What one promise covers.")
@click.option("--adjacency", type=click.Choice(["zero_out", "replace"]), default="zero_out", show_default=True,
              help="The neighbour: a client's update left out, or any other in its place.")
@click.option("--noise-multiplier", type=float, help="Noise on the sum of a round, over the clipping norm.")
@click.option("--sigma", type=float, help="Noise each client adds to every coordinate.")
@click.option("--clipping-norm", type=float, help="Largest L2 norm of a client's update; 1 if left out.")
@click.option("--cohort", help="Clients a round: a number, or several with commas.")
@click.option("--rounds", help="Rounds: a number, or several with commas.")
@click.option("--dropouts", type=int, default=0, show_default=True, help="Clients of a round that may fail to send.")
@click.option("--colluders", type=int, default=0, show_default=True, help="Clients of a round that may tell their noise.")
@click.option("--records", type=int, help="Records of each silo, for --unit record.")
@click.option("--batch-size", type=int, help="Records of a mini-batch, for --unit record.")
@click.option("--local-steps", type=int, help="Mini-batch steps a round, for --unit record.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw the noise on the mean against rounds into this PNG or SVG file.")
@_json
def plan(figure: Path | None, as_json: bool, cohort: str | None, rounds: str | None, **asked: Any) -> None:
    """Solve for the noise, cohort or rounds that hold a target ε; nothing is trained.

    What is left out is solved for: the noise, else the rounds, else the cohort. With all given, each combination is priced.
    """
    from rich.console import Console

    from fedpareto.privacy import plan as solve
    from fedpareto.report.plan import plan_data, plan_figure, plan_statements, plan_table

    choices = solve(cohort=_whole_numbers("--cohort", cohort), rounds=_whole_numbers("--rounds", rounds), **asked)
    drawn = plan_figure(choices, figure) if figure else None
    if as_json:
        click.echo(json.dumps(plan_data(choices)))
        return
    Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 400).print(plan_table(choices))
    for line in plan_statements(choices, asked):
        click.echo(line)
    if drawn:
        click.echo(f"figure  {drawn}")


def _whole_numbers(name: str, text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"{name}: must be a whole number, or several with commas, found {text!r}.") from None


def _opened(study_file: Path, db: Path | None) -> tuple[Study, Store]:
    """Return the study, with the seed that its database was made with, and the store."""
    from fedpareto.loop import database
    from fedpareto.store import Store
    from fedpareto.study import load_study

    store = Store.read(database(load_study(study_file), db))
    study = load_study(study_file, seed=store.identity["seed"])
    store.check(study.identity)
    return study, store


def _open(study_file: Path, db: Path | None) -> View:
    study, store = _opened(study_file, db)
    with store:
        return _look(study, store)


def _look(study: Study, store: Store) -> View:
    from fedpareto.report import view

    return view(study, store.trials())


def _write_report(seen: View, path: Path) -> list[Path]:
    """Write the page and its figures; without matplotlib, the page alone."""
    from fedpareto.report import write_page
    from fedpareto.report.figures import write_figures

    written = [write_page(seen, path)]
    try:
        return written + write_figures(seen, path.with_suffix(""))
    except MissingPackage as missing:
        click.echo(f"no PNG figures: {missing}", err=True)
        return written


def _print_front(seen: View, as_json: bool) -> None:
    from rich.console import Console

    from fedpareto.report.privacy import statements
    from fedpareto.report.text import front_data, proxies, summary, table

    if as_json:
        click.echo(json.dumps(front_data(seen)))
        return
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 400)
    if seen.front:
        console.print(table(seen))
    console.print(summary(seen), markup=False)
    for line in [*proxies(seen.objectives), *statements(seen)]:
        console.print(line, markup=False)


def _print_rest(seen: View, store: Store, page: Path) -> None:
    from fedpareto.report.text import short

    if seen.recommended:
        chosen = ", ".join(f"{k} = {short(v)}" for k, v in seen.recommended.settings.items())
        click.echo(f"\nrecommended ★ trial {seen.recommended.trial}: {chosen}")
    click.echo(seen.why)
    if seen.failed:
        click.echo(f"failed: trial {seen.failed[0].number}: {seen.failed[0].error}"
                   + (f" (and {len(seen.failed) - 1} more)" if len(seen.failed) > 1 else ""))
    click.echo(f"\nstudy  {seen.study.path}\nrows   {store.path}\npage   {page}")


def _limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise SettingError(f"--limit: must be NAME=VALUE with a number, found {text!r}.") from None


def main() -> None:
    """Run the command line; every error is one line and status 2."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # on a busy machine, threads that spin while they wait stop everything
    try:
        status = cli.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        _fail("stopped. What was finished is kept; the same command goes on from there.", 130)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except FedparetoError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: must be readable and writable, found: {error.strerror}.", 2)


def _fail(message: str, status: int) -> None:
    click.echo(f"error: {message}", err=True)
    sys.exit(status)
