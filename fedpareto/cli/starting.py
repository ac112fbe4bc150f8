"""The command that writes a study to start from."""

from __future__ import annotations

import os
import re
from itertools import takewhile
from pathlib import Path

import click

from fedpareto.cli.base import cli, say
from fedpareto.errors import SettingError, did_you_mean
from fedpareto.files import folder_of_examples, write_new

STARTER = "starter"
FILES = ("study.toml", "my_model.py", "my_data.py", "README.md")
NAMED = re.compile(r'"(\w+):\w+"')  # a part of the user's own, in a study file
SENTENCE = re.compile(r"[.?!](?=\s|$)")  # its end
TABLE = re.compile(r'"(\w+\.csv)"')  # a table beside it


@cli.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--example", default=STARTER, metavar="NAME", help="Which example; see --list.")
@click.option("--list", "as_list", is_flag=True, help="List the examples.")
def init(folder: Path, example: str, as_list: bool) -> None:
    """Write a study that runs as it is into FOLDER: a model and data to put your own in.

    Without FOLDER, into this folder. No file is replaced.
    """
    if as_list:
        for name in names():
            say(f"{name}: {asked_by(name)}")
        return
    written = write_example(example, folder)
    study = next(path for path in written if path.suffix == ".toml")
    for path in written:
        say(f"wrote {path}")
    say(f"Next: fedpareto run {study}")


def names() -> list[str]:
    """Return the names of all examples, the starter first."""
    return [STARTER, *sorted(path.stem for path in folder_of_examples().glob("*.toml"))]


def asked_by(name: str) -> str:
    """Return the sentences that the first line of an example's study file begins: what it asks."""
    study = next(path for path in files_of(name) if path.suffix == ".toml")
    lines = study.read_text(encoding="utf-8").splitlines()
    said = [line.removeprefix("#").strip() for line in takewhile(is_comment, lines)]
    text = " ".join(said)
    ends = (found.end() for found in SENTENCE.finditer(text))
    return text[: next((end for end in ends if end >= len(said[0])), None)]


def is_comment(line: str) -> bool:
    """Say whether a line of a study file is a comment."""
    return line.startswith("#")


def files_of(name: str) -> list[Path]:
    """Return the files of an example: its study file, and the modules and tables that it names."""
    folder = folder_of_examples()
    if name not in names():
        raise SettingError(
            f"--example: must be one of {', '.join(names())}, found {name!r}. "
            f"{did_you_mean(name, names())}"
        )
    if name == STARTER:
        return [folder / STARTER / file for file in FILES]
    study = folder / f"{name}.toml"
    text = study.read_text(encoding="utf-8")
    modules = sorted(set(NAMED.findall(text)))
    beside = [folder / f"{module}.py" for module in [*modules, name]]
    beside += [folder / table for table in sorted(set(TABLE.findall(text)))]
    return [study, *dict.fromkeys(path for path in beside if path.is_file())]


def write_example(name: str, folder: Path) -> list[Path]:
    """Copy the files of an example into a folder, which is made if need be; replace none."""
    found = files_of(name)
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"init: FOLDER must be a folder, found the file {folder}. Name another.")
    left = [path for path in found if not _is_there(path, folder / path.name)]
    there = [path.name for path in left if os.path.lexists(folder / path.name)]
    if there or not left:
        raise SettingError(
            f"init: {folder} must not hold {' or '.join(path.name for path in found)}, found "
            f"{' and '.join(there) or 'all of them'}. Name another folder: fedpareto init my-study"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in left:
        write_new(folder / path.name, path.read_bytes(), 0o644)
    return [folder / path.name for path in found]


def _is_there(path: Path, written: Path) -> bool:
    """Say whether a file was written already, by a command that was killed."""
    return written.is_file() and written.read_bytes() == path.read_bytes()
