"""Read a study file into a Study; all its faults are reported at once, each with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpareto.errors import Fault, SettingError, StudyError, did_you_mean
from fedpareto.federation import Data, Federation, is_unseen
from fedpareto.federation.data import OWN
from fedpareto.federation.measures import WORST
from fedpareto.files import MOST_OF_A_STUDY
from fedpareto.optimizers import StartsAround
from fedpareto.problem import Judge
from fedpareto.settings import check_source, import_from, is_own, named, searched
from fedpareto.space import Float
from fedpareto.study.lines import line_of, lines_of, longest_key
from fedpareto.study.members import key_of, member, member_table
from fedpareto.study.objectives import judge_tables, read_judges
from fedpareto.study.sections import FAMILIES, PLAIN, SECTIONS, UNLIKE, UNNAMED, Head
from fedpareto.study.study import Study, encrypted
from fedpareto.study.table import plain, read, refuse_unknown
from fedpareto.study.unseen import names_own

PARTS = 50  # of a dotted key


def load_study(
    path: str | Path, budget: int | None = None, seed: int | None = None, encrypt: bool = False
) -> Study:
    """Read a study file; budget and seed stand in for the file's own.

    With encrypt, the encryption of its mechanism is run and not only charged.
    """
    path = Path(path)
    text, table = parsed(path)
    import_from(path.parent)
    given = {"budget": budget, "seed": seed}
    given = {key: value for key, value in given.items() if value is not None}
    faults: list[Fault] = []
    study = built(table | given, path, faults)
    if study is None:
        raise StudyError(str(path), _placed(faults, text, given))
    return encrypted(study) if encrypt else study


def load_to_look(path: str | Path, stored: Mapping[str, Any], seed: int | None) -> Study:
    """Read a study file to look at its rows: no code of the user's own is imported.

    stored is what the database holds of the study, from which its own parts have their settings.
    """
    path = Path(path)
    text, table = parsed(path)
    if not names_own(table):
        return load_study(path, seed=seed)
    faults: list[Fault] = []
    given = {} if seed is None else {"seed": seed}
    study = built(table | given, path, faults, stored)
    if study is None:
        raise StudyError(str(path), _placed(faults, text, given))
    return study


def parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and what it says as TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_OF_A_STUDY + 1)
        if len(content) > MOST_OF_A_STUDY:
            fault = Fault("file", f"must be of at most {MOST_OF_A_STUDY} bytes, found more.")
            raise StudyError(str(path), [fault])
        text = content.decode()
        if longest_key(text) > PARTS:
            fault = Fault("syntax", f"must have keys of at most {PARTS} parts, found a longer one.")
            raise StudyError(str(path), [fault])
        return text, tomllib.loads(text)
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, near) if near else "Check the path."
        fault = Fault("file", f"must exist, found nothing there. {hint}")
    except (OSError, UnicodeDecodeError) as error:
        fault = Fault("file", f"must be a readable TOML text file, found: {error}.")
    except RecursionError:
        message = "must be TOML with few brackets inside one another, found too many."
        fault = Fault("syntax", message)
    except ValueError as error:  # TOMLDecodeError among them
        fault = Fault("syntax", f"must be TOML, found: {error}.")
    raise StudyError(str(path), [fault])


def _placed(faults: list[Fault], text: str, given: Mapping[str, Any]) -> list[Fault]:
    """Return the faults with their lines; those of what the command line gave, as its options."""
    lines = lines_of(text)
    placed = []
    for fault in faults:
        if fault.key in given:
            placed.append(Fault(f"--{fault.key}", fault.message))
        else:
            placed.append(replace(fault, line=line_of(lines, fault.key)))
    return placed


def built(
    table: dict[str, Any],
    path: Path,
    faults: list[Fault],
    stored: Mapping[str, Any] | None = None,
) -> Study | None:
    """Return the study that a file describes; on any fault, add to faults and return None.

    With what a database holds of it, it is one to look at.
    """
    sections = _sections(table, faults)
    head = _head(table, faults)
    held: dict[str, Any]
    held = {name: read(cls, sections[name], name, faults) for name, cls in PLAIN.items()}
    held |= {
        name: member(
            name, sections[name], name, path.parent, faults, stored and stored.get(name, {})
        )
        for name in FAMILIES
    }
    asked = {name: sections[name] for name in ("objectives", "limits")}
    objectives, limits = read_judges(asked, held, faults)
    if stored is None:
        _check_functions(held, (*objectives, *limits), path.parent, faults)
    _refuse_shared_names(held, faults)
    _refuse_unused_means(held, faults)
    if head is None or faults:
        return None
    try:
        problem = Federation(
            data=_located(held["data"], path.parent),
            model=held["model"],
            training=held["training"],
            mechanism=held["mechanism"],
            objectives=objectives,
            block=head.block or (stored or {}).get("block") or _block(held),
            privacy=held["privacy"],
            cost=held["cost"],
            server=held["server"],
            local=held["local"],
            limits=limits,
            looked_at=stored is not None,
        )
    except SettingError as error:
        key, _, message = str(error).partition(": ")
        faults.append(Fault(key_of(key, held["mechanism"]), message))
        return None
    head = replace(head, name=head.name or path.stem, block=problem.block)
    return Study(
        name=head.name,
        problem=problem,
        optimizer=held["optimizer"],
        budget=head.budget,
        seed=head.seed,
        repeats=head.repeats,
        in_flight=head.in_flight,
        path=path,
        description=_described(head, sections, held, (*objectives, *limits)),
    )


def _block(held: Mapping[str, Any]) -> int:
    """Return how many federations train in one pass, where the file does not say it."""
    batch = int(held["optimizer"].batch)
    return min(batch, UNLIKE) if held["training"].works_differ else batch


def _described(
    head: Head,
    sections: Mapping[str, Any],
    held: Mapping[str, Any],
    asked: Iterable[Judge],
) -> dict[str, Any]:
    """Return a study file in full, every default filled in."""
    described = {name: plain(held[name]) for name in PLAIN}
    described |= {name: member_table(sections[name], held[name]) for name in FAMILIES}
    described |= judge_tables(asked)
    top: dict[str, Any] = plain(head)
    if not described["limits"]:
        del described["limits"]
    return top | {name: described[name] for name in SECTIONS if name in described}


def _sections(table: Mapping[str, Any], faults: list[Fault]) -> dict[str, dict[str, Any]]:
    """Return every section of a file, an empty one where it is left out or no table."""
    sections = {}
    for name in SECTIONS:
        found = table.get(name, {})
        if not isinstance(found, dict):
            message = f"must be a table, found {found!r}. Write it as [{name}]."
            faults.append(Fault(name, message))
            found = {}
        sections[name] = found
    for name, unnamed in UNNAMED.items():
        sections[name] = {"name": unnamed} | sections[name]
    return sections


def _head(table: Mapping[str, Any], faults: list[Fault]) -> Head | None:
    """Return the keys at the top of a file."""
    keys = Head.__dataclass_fields__
    refuse_unknown(table, [*keys, *SECTIONS], "", faults)
    return read(Head, {key: value for key, value in table.items() if key in keys}, "", faults)


def _check_functions(
    held: Mapping[str, Any], asked: Iterable[Judge], folder: Path, faults: list[Fault]
) -> None:
    """Refuse functions of data, loss and measures that a study file may not name."""
    named = {f"{o.section}.{o.name}.measure": o.measure.removesuffix(WORST) for o in asked}
    if held["data"] is not None:
        named["data.name"] = held["data"].name
        named["data.split"] = held["data"].split
    if held["training"] is not None:
        named["training.loss"] = held["training"].loss
    for key, name in named.items():
        try:
            if is_own(name):
                check_source(name, folder)
        except SettingError as error:
            faults.append(Fault(key, str(error)))


def _located(data: Data, folder: Path) -> Data:
    """Return the data with the paths of files that lie beside the study file."""
    name, statistics = (_beside(text, folder) for text in (data.name, data.standardise))
    return replace(data, name=name, standardise=statistics)


def _beside(name: str, folder: Path) -> str:
    """Return the path of a file of the user's own where it lies in a folder; else the name."""
    beside = folder.resolve() / name
    return str(beside) if name.endswith(OWN) and beside.is_file() else name


def _refuse_unused_means(held: Mapping[str, Any], faults: list[Fault]) -> None:
    """Refuse the mean of a variable where the optimizer has no first generation to draw by it."""
    optimizer = held["optimizer"]
    if optimizer is None or is_unseen(optimizer) or isinstance(optimizer, StartsAround):
        return
    for section in ("training", "mechanism", "local", "server", "model"):
        for v in searched(held[section]) if held[section] is not None else ():
            if isinstance(v, Float) and v.mean is not None:
                message = (
                    "must have no mean and spread with an optimizer that draws no first generation "
                    f"by them, found {type(optimizer).__name__}. Leave them out, or take fedmoeac "
                    "or nsga2."
                )
                faults.append(Fault(key_of(f"{section}.{v.name}", held["mechanism"]), message))


def _refuse_shared_names(held: Mapping[str, Any], faults: list[Fault]) -> None:
    """Refuse settings of two sections with one name: a point could not tell them apart."""
    owner: dict[str, str] = {}
    for section in ("training", "mechanism", "local", "server", "model"):
        part = held[section]
        if part is None:
            continue
        names = [v.name for v in searched(part)] if section == "model" else list(named(part))
        for name in names:
            other = owner.setdefault(name, section)
            if other != section:
                message = f"must have a name of its own, found one that [{other}] has: {name}."
                faults.append(Fault(key_of(f"{section}.{name}", held["mechanism"]), message))
