"""From a row of `fedpareto plan` to a study file that holds it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpareto.errors import Fault, SettingError, StudyError
from fedpareto.privacy import Planned, delta_text, rounded_up
from fedpareto.study.read import built
from fedpareto.study.write import to_toml

# Training images of the known data sets: each client needs one.
IMAGES = {"digits": 1_438, "mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000}
RATES = 8  # learning rates tried

Line = tuple[str, Any, str]  # key, value, comment


def planned_study(
    choice: Planned, asked: Mapping[str, Any], path: Path, data: str | None = None
) -> str:
    """Return the text of a study file that trains with the noise, cohort and rounds of a row.

    asked holds what was given to `plan`. Its ε is that of the row, and only the learning rate is
    searched. data names the data set; the smallest known one that is large enough if left out.
    """
    target = asked["target_epsilon"]
    if choice.epsilon > target:
        raise SettingError(
            f"row: must hold the target ε = {target:g}, found ε = {rounded_up(choice.epsilon)}. "
            "Choose a row that holds it, or raise the target."
        )
    held = asked["records"] or 1  # images of each client
    _check_data(asked["clients"], data, held)
    hidden = {"local": _local(choice)} if asked["records"] else {}
    sections = {
        "": [("name", path.stem, ""), *_head()],
        "data": _data(asked["clients"], data, asked["records"]),
        "model": [("name", "lr", "logistic regression: small models bear noise best")],
        "training": _training(choice, asked),
        **hidden,
        "mechanism": [("name", "none", "")] if hidden else _mechanism(choice, asked),
        "privacy": _privacy(choice, asked),
        "objectives.test_error": [],
        "objectives.epsilon": [("reference", 2.0 * target, "for the hypervolume alone")],
        "optimizer": [("name", "grid", ""), ("points", RATES, ""), ("batch", RATES, "")],
    }
    text = "\n".join([*_heading(choice, asked), *_written(sections)])
    faults: list[Fault] = []
    if built(tomllib.loads(text), path, faults) is None:
        raise StudyError(str(path), faults)
    return text


def _heading(choice: Planned, asked: Mapping[str, Any]) -> list[str]:
    """Return what the study is, as comments."""
    return [
        f"# Planned to hold ε = {asked['target_epsilon']:g} at δ = {delta_text(choice.delta)}: "
        f"{choice.cohort} of {asked['clients']} clients a round, {choice.rounds} rounds.",
        "# ε follows from clients, sampling, cohort, rounds, noise, clip norm and [privacy].",
        "# Put your own data, model and learning rate in place of these.",
        "# A range is searched, a number is fixed.",
        "",
    ]


def _head() -> list[Line]:
    return [
        ("seed", 1, ""),
        ("budget", RATES, "trials"),
        ("repeats", 3, "trainings of each trial"),
    ]


def _data(clients: int, named: str | None, records: int | None) -> list[Line]:
    yours = (
        "in its place your own: an .npz file with x_train, y_train, x_test, y_test, "
        "or package.module:function"
    )
    name = named or _large_enough(clients, records or 1)[0]
    lines: list[Line] = [("name", name, yours), ("clients", clients, "")]
    if records and name in IMAGES:
        share = clients * records / IMAGES[name]
        lines.append(("share", share, f"{records} records at each client, as planned"))
    return lines


def _check_data(clients: int, named: str | None, held: int) -> None:
    """Refuse a known data set with too few images; one's own is counted when it is read."""
    enough = _large_enough(clients, held)
    if named in enough or (named is None and enough) or (named and named not in IMAGES):
        return
    largest = named or max(IMAGES, key=lambda name: IMAGES[name])
    each = "an image" if held == 1 else f"{held:,} images"
    raise SettingError(
        f"--data: must hold {each} for each of the {clients:,} clients, found "
        f"{IMAGES[largest]:,} in {largest}. Name {', '.join([*enough, 'data of your own'])}: "
        "an .npz file, or package.module:function."
    )


def _large_enough(clients: int, held: int) -> list[str]:
    """Return the known data sets with so many images for each client, the smallest first."""
    return [name for name, images in IMAGES.items() if images >= clients * held]


def _local(choice: Planned) -> list[Line]:
    return [
        ("name", "dp_sgd", "clips and hides every record at every local step"),
        ("record_noise_multiplier", choice.noise_multiplier, "noise, over the clipping norm"),
        ("record_clipping_norm", choice.clipping_norm, "largest norm of a record's gradient"),
    ]


def _training(choice: Planned, asked: Mapping[str, Any]) -> list[Line]:
    ratio = choice.cohort / asked["clients"]
    drawn = "fixed: a cohort of this size; poisson: each client by its own chance"
    return [
        ("rounds", choice.rounds, ""),
        ("local_steps", asked["local_steps"] or 5, ""),
        ("batch_size", asked["batch_size"] or 16, ""),
        ("sampling", asked["sampling"], drawn),
        ("sample_ratio", ratio, f"{choice.cohort} of {asked['clients']} clients"),
        ("learning_rate", {"low": 0.01, "high": 4.0, "log": True}, ""),
        ("evaluate_every", max(1, choice.rounds // 10), ""),
    ]


def _mechanism(choice: Planned, asked: Mapping[str, Any]) -> list[Line]:
    given = asked["noise_multiplier"]
    if given is None:
        noise = ("sigma", choice.sigma, "noise that each client adds to every number")
    else:
        noise = ("noise_multiplier", given, "noise on the sum of a round, over clipping_norm")
    norm = ("clipping_norm", choice.clipping_norm, "largest norm of a client's update")
    return [("name", "randomization", ""), noise, norm]


def _privacy(choice: Planned, asked: Mapping[str, Any]) -> list[Line]:
    sees = {
        "server": "who looks on sees each upload",
        "secagg": "who looks on sees sums, and who took part",
        "release": "who looks on sees the models alone; who took part must stay secret",
    }
    searched = "true if this study trains on private data: then the search is priced too"
    return [
        ("view", choice.view, sees[choice.view]),
        ("target_epsilon", asked["target_epsilon"], "the limit of the objective epsilon"),
        ("target_delta", choice.delta, ""),
        *((name, asked[name], "") for name in ("unit", "adjacency", "dropouts", "colluders")),
        ("private_data", False, searched),
    ]


def _written(sections: Mapping[str, Sequence[Line]]) -> list[str]:
    """Return sections as the lines of a file."""
    out = []
    for section, lines in sections.items():
        if section:
            out.append(f"[{section}]")
        found = [(to_toml({key: value}), comment) for key, value, comment in lines]
        width = max((len(line) for line, comment in found if comment), default=0)
        for line, comment in found:
            out.append(f"{line:{width}}   # {comment}" if comment else line)
        out.append("")
    return out
