"""What the commands share: the group, options, and how a study is opened."""

from __future__ import annotations

import contextlib
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpareto import __version__
from fedpareto.errors import SettingError
from fedpareto.words import visible_lines

if TYPE_CHECKING:
    from rich.console import Console

    from fedpareto.report import Point, View
    from fedpareto.store import Store
    from fedpareto.study import Study


def _checked_db(context: click.Context, option: click.Parameter, db: Path | None) -> Path | None:
    """Refuse a database that is no file, or that is the study file."""
    if db is None:
        return None
    if not db.name or str(db) == ":memory:" or str(db).startswith("file:"):
        raise SettingError(f"--db: must be a file, found {str(db)!r}. Name one, such as study.db.")
    if db.exists() and not db.is_file():
        raise SettingError(f"--db: must be a file, found {db}, which is none. Name another.")
    study = context.params.get("study_file")
    if study is not None and db.exists() and study.exists() and db.samefile(study):
        raise SettingError(f"--db: must be a file of its own, found the study file {db}.")
    return db


def checked_study(study: Path) -> Path:
    """Refuse a study that is a pipe or a device: reading it may never end."""
    with contextlib.suppress(OSError, ValueError):
        if not stat.S_ISREG(study.stat().st_mode) and not study.is_dir():
            raise SettingError(f"STUDY: must be a file, found {study}, which is none. Name a file.")
    return study


# eager, so that options which are checked against it find it
study_argument = click.argument(
    "study_file",
    metavar="STUDY",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=lambda context, option, study: checked_study(study),
)
db_option = click.option(
    "--db",
    type=click.Path(path_type=Path),
    callback=_checked_db,
    help="The study's database; STUDY with .db if left out.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """Find and choose trade-offs between privacy, utility and cost in federated learning."""


def say(line: object, err: bool = False, nl: bool = True) -> None:
    """Print lines; what a file's text holds of control characters is shown, and does nothing."""
    click.echo(visible_lines(line), err=err, nl=nl)


def inputs_of(study: Study, database: Path) -> dict[str, Path]:
    """Return the files that a study is read from, each under the words for it."""
    found = {"the study's database": database}
    if study.path is not None:
        found["the study file"] = study.path
    for name in _named(study.description):
        if name.endswith((".npz", ".csv", ".parquet")):
            found[f"the study's data {name}"] = Path(name)
        module = sys.modules.get(name.partition(":")[0])
        if ":" in name and getattr(module, "__file__", None):
            found[f"the study's own code {name}"] = Path(str(module.__file__))  # type: ignore[union-attr]
    return found


def _named(value: Any) -> Iterator[str]:
    """Yield every text in the description of a study: names of files and of code among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _named(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _named(part)


def console() -> Console:
    """Return a console for tables: as wide as the terminal, or wide enough for a file."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 400
    return Console(highlight=False, soft_wrap=True, width=width)


def opened(
    study_file: Path, db: Path | None, run_code: bool = False, train: bool = False
) -> tuple[Study, Store]:
    """Return a study, with the seed that its database was made with, and its open store.

    Unless the command must run them, parts of the user's own are not imported. Unless it trains,
    what the database keeps of the data stands for them.
    """
    from fedpareto.store import Store

    store = Store.read(database_of(study_file, db))
    try:
        return _study_of(study_file, store, run_code, train), store
    except BaseException:
        store.close()
        raise


def _study_of(study_file: Path, store: Store, run_code: bool, train: bool) -> Study:
    """Return the study that a store is of; one that has changed is refused."""
    from fedpareto.baselines import remembering
    from fedpareto.problem import is_private
    from fedpareto.study import load_study, load_to_look

    if run_code:
        study = load_study(study_file, seed=store.seed)
    else:
        study = load_to_look(study_file, store.identity, store.seed)
    store.check(study.identity)
    if is_private(study.problem):
        store.check_noise()
    return study if train else replace(study, problem=remembering(study, store))


def database_of(study_file: Path, db: Path | None) -> Path:
    """Return where a study's rows are; a study file with faults is refused before."""
    from fedpareto.study import load_study
    from fedpareto.study.read import parsed
    from fedpareto.study.unseen import names_own

    if not names_own(parsed(study_file)[1]):
        load_study(study_file)
    return db or study_file.with_suffix(".db")


def look_at(study_file: Path, db: Path | None) -> View:
    """Return the view of a study's trials so far."""
    study, store = opened(study_file, db)
    with store:
        return looked(study, store)


def looked(study: Study, store: Store) -> View:
    """Return the view of the trials in a study's open store."""
    from fedpareto.report.points import view_of

    return view_of(study, store)


def point_of(
    seen: View, trial: int | None, picked: bool, limits: dict[str, float], prefer: str | None
) -> Point:
    """Return a point of a study: a trial, a picked one, or the recommended one."""
    from fedpareto.report import pick

    if trial is not None:
        found = [p for p in seen.points if p.trial == trial]
        if not found:
            known = [p.trial for p in seen.points]
            some = f"{min(known)} to {max(known)}" if known else "none"
            raise SettingError(
                f"--trial: must be a trial that was measured, found {trial}; measured are {some}. "
                "A trial that failed has no model."
            )
        return found[0]  # the trial itself; points on the way of its run come after it
    if picked:
        return pick(seen, limits, prefer)[0]
    if seen.recommended is None:
        raise SettingError(f"study: needs a recommended point, found none. {seen.why}")
    return seen.recommended


def limit_of(text: str, option: str = "--limit") -> tuple[str, float]:
    """Return the name and the number of NAME=VALUE."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise SettingError(f"{option}: must be NAME=VALUE with a number, found {text!r}.") from None


def whole_numbers(name: str, text: str | None) -> list[int] | None:
    """Return the whole numbers of a text such as 10,20; None for no text."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(
            f"{name}: must be a whole number, or several with commas, found {text!r}."
        ) from None


def numbers(name: str, text: str) -> list[float]:
    """Return the numbers of a text such as 1,0.5."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"{name}: must be numbers with commas, found {text!r}.") from None
