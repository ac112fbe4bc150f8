"""A study: one question, as a TOML file or as objects. Reading a file reports every fault at once."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpareto.errors import Fault, SettingError, StudyError, did_you_mean
from fedpareto.federation import MEASURES, MODELS, Cost, Data, Federation, Own, Training
from fedpareto.mechanisms import MECHANISMS, Chain, adds_noise, links_of
from fedpareto.optimizers import OPTIMIZERS, Optimizer
from fedpareto.privacy import Privacy
from fedpareto.problem import Objective, Problem
from fedpareto.settings import imported, named, plain, read, setting

FAMILIES: dict[str, Mapping[str, type]] = {"model": MODELS, "mechanism": MECHANISMS, "optimizer": OPTIMIZERS}
METHODS = {"model": "build", "mechanism": "protect", "optimizer": "propose"}  # what a member of the family must have
SECTIONS = ("data", "model", "training", "mechanism", "privacy", "cost", "objectives", "optimizer")


@dataclass(frozen=True)
class Head:
    """The keys at the top of a study file."""

    name: str = setting("", help="what the study is called; the file's name if left out", search=False)
    seed: int = setting(0, help="where every random number comes from", at_least=0, at_most=2**63 - 1, search=False)
    budget: int = setting(200, help="how many trials in all; raise it to continue", at_least=1, at_most=10_000_000,
                          search=False)
    repeats: int = setting(1, help="how often each trial is trained, each time with its own seed", at_least=1,
                           at_most=10_000, search=False)
    block: int = setting(0, help="how many federations train in one pass; 0 for the optimizer's batch", at_least=0,
                         at_most=100_000, search=False)


@dataclass(frozen=True)
class ObjectiveTable:
    """The keys of one objective."""

    measure: str = setting("", help="which measure; the objective's own name if left out", search=False)
    case: str = setting("average", help="over clients (Kang 2023, Def. 5) or for the worst client (Def. 6)",
                        options=("average", "worst"), search=False)
    limit: float | None = setting(None, help="what the objective must not exceed", search=False)
    penalty: float = setting(20.0, help="weight α of exceeding the limit (Kang 2023, Eq. 8)", at_least=0, at_most=1e12,
                             search=False)
    reference: float | None = setting(None, help="component of the hypervolume reference point; the measure's largest "
                                                 "value if left out, else the limit", search=False)


@dataclass(frozen=True)
class Study:
    """A problem, an optimizer and how far to go."""

    name: str
    problem: Problem
    optimizer: Optimizer
    budget: int
    seed: int = 0
    repeats: int = 1
    path: Path | None = None
    description: dict[str, Any] = field(default_factory=dict)  # the study file in full, defaults filled in

    def __post_init__(self) -> None:
        for key, least in (("budget", 1), ("repeats", 1), ("seed", 0)):
            if getattr(self, key) < least:
                raise SettingError(f"study {self.name}: {key} must be at least {least}, found {getattr(self, key)}.")

    @property
    def identity(self) -> dict[str, Any]:
        """What makes it this study: everything but its name and how far to go."""
        if not self.description:
            return {"seed": self.seed, "repeats": self.repeats, "problem": plain(self.problem),
                    "optimizer": {"name": type(self.optimizer).__name__, **plain(self.optimizer)}}
        objectives = [{"name": name, **table} for name, table in self.description["objectives"].items()]  # their order counts
        kept = {key: value for key, value in self.description.items() if key not in ("name", "budget")}
        return kept | {"objectives": objectives}


def load_study(path: str | Path, budget: int | None = None, seed: int | None = None, encrypt: bool = False) -> Study:
    """Read a study file; budget and seed stand in for the file's own. With encrypt, encryption is run and not only charged."""
    path = Path(path)
    table, text = _parse(path)
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))  # so that what lies beside the study file can be imported
    given = {key: value for key, value in (("budget", budget), ("seed", seed)) if value is not None}
    faults: list[Fault] = []
    study = _build(table | given, path, faults)
    if faults or study is None:
        raise StudyError(str(path), [Fault(f"--{f.key}", f.message) if f.key in given else replace(f, line=line_of(text, f.key))
                                     for f in faults])
    return encrypted(study) if encrypt else study


def encrypted(study: Study) -> Study:
    """Return the study with its encryption run and not only charged: the models are the same, so it is the same study."""
    problem: Any = study.problem
    links = links_of(problem.mechanism)
    if not any(hasattr(link, "encrypt") for link in links):
        raise SettingError(f"--encrypt: must go with a mechanism that encrypts, found {study.description['mechanism']['name']}.")
    made = tuple(replace(link, encrypt=True) if hasattr(link, "encrypt") else link for link in links)
    mechanism = replace(problem.mechanism, links=made) if hasattr(problem.mechanism, "links") else made[0]
    return replace(study, problem=replace(problem, mechanism=mechanism))


def _parse(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_bytes().decode()
        return tomllib.loads(text), text
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, near) if near else "Check the path."
        raise StudyError(str(path), [Fault("file", f"must exist, found nothing there. {hint}")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(str(path), [Fault("file", f"must be a readable TOML text file, found: {error}.")]) from None
    except RecursionError:
        raise StudyError(str(path), [Fault("syntax", "must be TOML with few brackets inside one another, found too many.")]) from None
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise StudyError(str(path), [Fault("syntax", f"must be TOML, found: {error}.")]) from None


def _build(table: dict[str, Any], path: Path, faults: list[Fault]) -> Study | None:
    sections = {name: table.get(name, {}) for name in SECTIONS}
    for name, section in sections.items():
        if not isinstance(section, dict):
            faults.append(Fault(name, f"must be a table, found {section!r}. Write it as [{name}]."))
            sections[name] = {}
    top = {key: value for key, value in table.items() if key not in SECTIONS}
    unknown = [key for key in top if key not in Head.__dataclass_fields__]
    for key in unknown:
        known = [*Head.__dataclass_fields__, *SECTIONS]
        faults.append(Fault(key, f"there is no such key. {did_you_mean(key, known)}"))
    head = read(Head, {k: v for k, v in top.items() if k not in unknown}, "", faults)
    data = read(Data, sections["data"], "data", faults)
    training = read(Training, sections["training"], "training", faults)
    privacy = read(Privacy, sections["privacy"], "privacy", faults)
    cost = read(Cost, sections["cost"], "cost", faults)
    sections["optimizer"] = {"name": "bayesian"} | sections["optimizer"]
    parts = {name: _member(name, sections[name], faults) for name in FAMILIES}
    objectives = _objectives(_with_target(sections["objectives"], privacy, faults), parts["mechanism"], faults)
    _names_differ(training, parts["mechanism"], faults)
    if head is None or data is None or training is None or privacy is None or cost is None or objectives is None or faults:
        return None
    model, mechanism, optimizer = (parts[name] for name in FAMILIES)
    try:
        problem = Federation(_located(data, path.parent), model, training, mechanism, objectives, head.block or optimizer.batch, privacy,
                             cost)
    except SettingError as error:
        key, _, message = str(error).partition(": ")
        faults.append(Fault(key, message))
        return None
    head = replace(head, name=head.name or path.stem, block=problem.block)
    tables = {name: {"name": sections[name]["name"], **_settings(parts[name], sections[name])} for name in FAMILIES}
    description = {**plain(head), "data": plain(data), "model": tables["model"], "training": plain(training),
                   "mechanism": tables["mechanism"], "privacy": plain(privacy), "cost": plain(cost), "objectives": _tables(objectives),
                   "optimizer": tables["optimizer"]}
    return Study(head.name, problem, optimizer, head.budget, head.seed, head.repeats, path, description)


def _located(data: Data, folder: Path) -> Data:
    """Return the data with the path of a file that lies beside the study file."""
    beside = folder.resolve() / data.name
    return replace(data, name=str(beside)) if data.name.endswith(".npz") and beside.is_file() else data


def _settings(member: Any, section: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(member, Chain):
        return {"links": [{"name": table["name"], **plain(link)} for table, link in zip(section["links"], member.links, strict=True)]}
    held: dict[str, Any] = json.loads(member.arguments) if isinstance(member, Own) else plain(member)
    return held


def _member(family: str, section: dict[str, Any], faults: list[Fault], where: str = "") -> Any:
    """Return the member of a family that a section names, with its settings."""
    name, where = section.get("name"), where or family
    if not isinstance(name, str):
        found = "nothing" if name is None else repr(name)
        rule = f"must name one of {', '.join(sorted(FAMILIES[family]))}"
        faults.append(Fault(f"{where}.name", f"{rule}, or your own as 'package.module:Name'; found {found}."))
        return None
    if family == "mechanism" and name == "chain":
        return _chain(section, where, faults)
    try:
        cls = find(name, FAMILIES[family])
        if family == "model" and ":" in name and callable(cls) and not hasattr(cls, "__dataclass_fields__"):
            return Own(name, json.dumps({key: value for key, value in section.items() if key != "name"}))
        _must_be_member(name, cls, family)
    except SettingError as error:
        faults.append(Fault(f"{where}.name", str(error)))
        return None
    return read(cls, {key: value for key, value in section.items() if key != "name"}, where, faults)


def _chain(section: dict[str, Any], where: str, faults: list[Fault]) -> Chain | None:
    """Return a chain of the mechanisms in links = [{name = ..., ...}, ...]."""
    links = section.get("links")
    faults += [Fault(f"{where}.{key}", f"there is no such key. {did_you_mean(key, ['links'])}") for key in section if key not in
               ("name", "links")]
    if not isinstance(links, list) or not links or not all(isinstance(link, dict) for link in links):
        faults.append(Fault(f"{where}.links", "must be a list of at least one mechanism, each a table with its name such as "
                                              f"{{name = \"quantization\", bits = 8}}, found {links!r}."))
        return None
    made = [_member("mechanism", link, faults, f"{where}.links.{i}") for i, link in enumerate(links, 1)]
    return None if None in made else Chain(tuple(made))


def _must_be_member(name: str, cls: Any, family: str) -> None:
    right = isinstance(cls, type) and hasattr(cls, "__dataclass_fields__") and hasattr(cls, METHODS[family])
    if not right:
        also = " or an nn.Module" if family == "model" else ""
        raise SettingError(f"{name!r} must be a dataclass of settings with a method {METHODS[family]!r}{also}, found {cls!r}.")


def find(name: str, family: Mapping[str, type]) -> type:
    """Return the class a name stands for: one of the family, or the user's own by dotted path."""
    if name in family:
        return family[name]
    if ":" not in name:
        raise SettingError(f"there is no {name!r}. {did_you_mean(name, family)}")
    return imported(name)  # type: ignore[no-any-return]


def _with_target(section: dict[str, Any], privacy: Privacy | None, faults: list[Fault]) -> dict[str, Any]:
    """Return the objectives with the target ε as the limit of the one that measures ε."""
    if privacy is None or privacy.target_epsilon is None:
        return section
    name = next((n for n, table in section.items() if isinstance(table, dict) and table.get("measure", n) == "epsilon"), None)
    if name is None:
        faults.append(Fault("privacy.target_epsilon", "must go with an objective that measures ε, found none. Add [objectives.epsilon]."))
        return section
    return section | {name: {"limit": privacy.target_epsilon} | section[name]}


def _objectives(section: dict[str, Any], mechanism: Any, faults: list[Fault]) -> tuple[Objective, ...] | None:
    if not section:
        faults.append(Fault("objectives", f"must name at least one, found none. Measures: {', '.join(MEASURES)}."))
        return None
    made = [_objective(name, table, mechanism, faults) for name, table in section.items()]
    return tuple(o for o in made if o is not None) if None not in made else None


def _objective(name: str, table: Any, mechanism: Any, faults: list[Fault]) -> Objective | None:
    where = f"objectives.{name}"
    if not isinstance(table, dict):
        faults.append(Fault(where, f"must be a table such as {{limit = 0.8}}, found {table!r}."))
        return None
    asked = read(ObjectiveTable, table, where, faults)
    if asked is None:
        return None
    key = f"{where}.measure" if asked.measure else where
    measure = MEASURES.get(asked.measure or name)
    if measure is None:
        faults.append(Fault(key, f"there is no measure {asked.measure or name!r}. "
                                 f"{did_you_mean(asked.measure or name, MEASURES)}"))
        return None
    missing = _missing(measure.needs, mechanism)
    reference = next((v for v in (asked.reference, measure.reference, asked.limit) if v is not None), None)
    if missing:
        faults.append(Fault(key, f"needs a mechanism with {' and '.join(missing)}, found {type(mechanism).__name__}."))
    if reference is None:
        faults.append(Fault(f"{where}.reference", "must be given, since this measure has no largest value: the worst "
                                                  "value that still counts towards the hypervolume."))
    if missing or reference is None:
        return None
    chosen = measure.worst if asked.case == "worst" and measure.worst else asked.measure or name
    return Objective(name, chosen, asked.limit, asked.penalty, reference, measure.proxy)


DERIVED = {"sigma", "clipping_norm", "noise_multiplier", "epsilon", "epsilon_server", "epsilon_secagg", "epsilon_release"}


def _missing(needs: Iterable[str], mechanism: Any) -> list[str]:
    """Return what a measure is computed from and the mechanism does not have; Gaussian noise gives all that is derived from it."""
    if mechanism is None:
        return []
    there = {"unprotected_error"} | set(named(mechanism)) | (DERIVED if adds_noise(mechanism) else set())
    return ["Gaussian noise" if need.startswith("epsilon") else need for need in needs if need not in there]


def _tables(objectives: Iterable[Objective]) -> dict[str, Any]:
    """Return objectives as a study file would hold them."""
    keep = ("measure", "limit", "penalty", "reference")
    return {o.name: {k: getattr(o, k) for k in keep if getattr(o, k) is not None} for o in objectives}


def _names_differ(training: Any, mechanism: Any, faults: list[Fault]) -> None:
    """Refuse a mechanism with a setting that training has too: a point could not tell them apart."""
    if training is None or mechanism is None:
        return
    for name in set(named(training)) & set(named(mechanism)):
        faults.append(Fault(f"mechanism.{name}", f"must have a name of its own, found one that [training] has: {name}."))


def line_of(text: str, key: str) -> int | None:
    """Return the line of a study file where a dotted key, or the nearest table around it, stands."""
    want, best, depth, table = key.split("."), None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+([^\]]+)\]", line)
        entry = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if header:
            table = [part.strip(" \"'") for part in header[1].split(".")]
            path = table
        elif entry:
            path = table + [part.strip(" \"'") for part in entry[1].split(".")]
        else:
            continue
        if path == want[: len(path)] and len(path) > depth:
            best, depth = number, len(path)
    return best
