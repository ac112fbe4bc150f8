"""What all parties of a deployment agree on: one JSON file, known by its SHA-256."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedpareto.contract import Round
from fedpareto.errors import DeploymentError, Fault, FedparetoError, StudyError, shown
from fedpareto.federation import Federation
from fedpareto.federation.columns import contract_of, hides_records, rounds_of
from fedpareto.federation.facts import Facts
from fedpareto.files import json_of
from fedpareto.settings import import_from
from fedpareto.study.read import built

FILE = "deployment.json"
VERSION = 1
BEYOND = ("stop", "raise")
MOST_BYTES = 2**26  # of the file: the sizes of millions of sites


@dataclass(frozen=True)
class Deployment:
    """The settings of a point and all that its training needs, but the data."""

    name: str
    study: dict[str, Any]  # a study file's table in which every setting is fixed
    seed: int  # of the first model and of which connections there are; no secret
    shape: tuple[int, ...]  # of an input
    classes: int  # 1 where numbers are predicted
    dtype: str  # of inputs: uint8 or float32
    scale: float  # an input is x * scale
    images: int  # training records of all sites in the study
    sizes: tuple[int, ...] = ()  # how many records each client holds, where ε depends on it
    planned: dict[str, float | None] = field(default_factory=dict)  # view → ε, None for none
    statements: tuple[str, ...] = ()  # what is promised, in words
    code: dict[str, str] = field(default_factory=dict)  # file of the user's own → SHA-256
    tells: bool = True  # whether sites tell how many of their test records a model gets wrong
    dropouts: int = 0  # sites of a round that may fail to answer
    beyond: str = "stop"  # what more dropouts do: stop, or raise ε in the ledger
    patience: float = 600.0  # seconds that a round waits for who does not answer
    skew: float = 300.0  # seconds that clocks may differ by
    version: int = VERSION
    folder: Path = Path()  # where it was read, with code of the user's own beside it

    def text(self) -> str:
        """Return the canonical JSON: the same for equal deployments."""
        agreed = {key: value for key, value in asdict(self).items() if key != "folder"}
        return json.dumps(agreed, sort_keys=True, indent=1, allow_nan=False) + "\n"

    @property
    def hash(self) -> str:
        """What tells this deployment from any other."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    @functools.cached_property
    def problem(self) -> Federation:
        """The federation of the study, with everything fixed and no data."""
        faults: list[Fault] = []
        study = built(self.study, self.folder / FILE, faults)
        if study is None:
            raise StudyError(FILE, faults)
        assert isinstance(study.problem, Federation)
        facts = Facts(self.shape, self.classes, self.images, (), self.sizes)
        return replace(study.problem, kept=facts)

    @functools.cached_property
    def columns(self) -> Mapping[str, Any]:
        """Every number of the one point, name → [1]."""
        return rounds_of(self.problem, {}, 1)

    @functools.cached_property
    def terms(self) -> Round:
        """The contract of a round."""
        return contract_of(self.problem, self.columns)

    @property
    def clients(self) -> int:
        """K, how many there are."""
        return self.problem.data.clients

    @property
    def rounds(self) -> int:
        """T, how many are agreed."""
        return int(self.columns["rounds"][0])

    @property
    def cohort(self) -> float:
        """The clients that a round expects."""
        return float(self.columns["cohort"][0])

    @property
    def ratio(self) -> float:
        """The share of clients that a round asks for."""
        return float(self.columns["sample_ratio"][0])


def read(folder: Path) -> Deployment:
    """Return the deployment in a folder; refuse one whose code is not what was agreed."""
    path = folder / FILE
    try:
        found = json_of(path, MOST_BYTES)
    except FileNotFoundError:
        raise DeploymentError(
            f"{path}: must be there, found none. Export a study: fedpareto export STUDY --to flower"
            f" {folder}"
        ) from None
    except ValueError as error:
        raise DeploymentError(f"{path}: must be JSON, found: {error}. Export it anew.") from None
    deployment = _made(found, path)
    _check_code(deployment, folder)
    import_from(folder)
    try:
        assert deployment.problem
    except (FedparetoError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeploymentError(f"{path}: must describe a study, found: {error}") from error
    _check_sizes(deployment, path)
    return deployment


def read_agreed(folder: Path, wanted: str) -> Deployment:
    """Return the deployment in a folder if it is the one agreed, of this SHA-256."""
    path = folder / FILE
    data = path.read_bytes() if path.is_file() else b""
    found = hashlib.sha256(data).hexdigest()
    if found != wanted:
        raise DeploymentError(
            f"{path.name}: must be the deployment that this site agreed to, {shown(wanted)[:14]}…, "
            f"found {found[:12]}…: the server runs another app. Ask who runs it why."
        )
    return read(folder)


def _made(found: Any, path: Path) -> Deployment:
    """Return the deployment that JSON describes."""
    keys = {f.name for f in fields(Deployment)} - {"folder"}
    if not isinstance(found, dict) or set(found) != keys:
        got = set(found) if isinstance(found, dict) else {shown(found)}
        raise DeploymentError(
            f"{path}: must have the keys of a deployment, found other ones: "
            f"{', '.join(sorted(got ^ keys))}. Export it anew."
        )
    if found["version"] != VERSION:
        raise DeploymentError(
            f"{path}: must be of version {VERSION}, found {shown(found['version'])}. Use the "
            "fedpareto that wrote it, or export it anew."
        )
    _check_kinds(found, path)
    lists = {name: tuple(found[name]) for name in ("shape", "sizes", "statements")}
    deployment = Deployment(**found | lists, folder=path.parent)
    if deployment.beyond not in BEYOND:
        raise DeploymentError(
            f"{path}: beyond must be stop or raise, found {shown(deployment.beyond)}."
        )
    return deployment


def _check_kinds(found: Mapping[str, Any], path: Path) -> None:
    """Refuse a part of another kind than is written."""
    for name, (holds, must) in KINDS.items():
        if not holds(found[name]):
            raise DeploymentError(
                f"{path}: {name} must be {must}, found {shown(found[name])}. Export it anew."
            )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _number(value: Any) -> bool:
    """Say whether a value is a finite number of at least 0."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and 0 <= value < 1e300 and math.isfinite(value)


def _wholes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole, value))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _planned(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or _number(one) for one in value.values())


def _code(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


WHOLE = (_whole, "a whole number that is at least 0")
NUMBER = (_number, "a finite number that is at least 0")
WHOLES = (_wholes, "a list of whole numbers")
KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "a text"),
    "study": (lambda value: isinstance(value, dict), "an object"),
    "seed": WHOLE,
    "shape": WHOLES,
    "classes": (lambda value: _whole(value) and value > 0, "a whole number above 0"),
    "dtype": (lambda value: value in ("uint8", "float32"), "uint8 or float32"),
    "scale": NUMBER,
    "images": WHOLE,
    "sizes": WHOLES,
    "planned": (_planned, "an object of numbers, by view"),
    "statements": (_texts, "a list of texts"),
    "code": (_code, "an object of SHA-256, by file"),
    "tells": (lambda value: isinstance(value, bool), "true or false"),
    "dropouts": WHOLE,
    "patience": NUMBER,
    "skew": NUMBER,
}


def _check_sizes(deployment: Deployment, path: Path) -> None:
    """Refuse to promise something of records without saying how many sites may hold."""
    sizes, wanted = deployment.sizes, deployment.clients if hides_records(deployment.problem) else 0
    if len(sizes) != wanted or not all(type(size) is int and size > 0 for size in sizes):
        raise DeploymentError(
            f"{path}: sizes must be {wanted} whole numbers above 0, the records of each client "
            f"where ε is one of records, found {shown(list(sizes))}. Export it anew."
        )


def _check_code(deployment: Deployment, folder: Path) -> None:
    """Refuse code of the user's own that is not what was agreed, before any of it runs."""
    for name, agreed in deployment.code.items():
        path = folder / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        if found != agreed:
            raise DeploymentError(
                f"{path}: must be the code that was agreed, of SHA-256 {agreed[:12]}…, found "
                f"{found[:12]}. Take the file that was exported."
            )
