"""Broken study files: each is refused in words that name the key, with status 2, and no row is touched."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedpareto.errors import StudyError
from fedpareto.study import load_study

RATE = "learning_rate = { low = 0.01, high = 0.5, log = true }"
SIGMA = "sigma = { low = 0.01, high = 1.0, log = true }"
CLIP = "clipping_norm = [0.5, 4.0]"
MECHANISM = f'[mechanism]\nname = "randomization"\n{SIGMA}\n{CLIP}\n'
LEAKAGE = '[objectives.leakage]\nmeasure = "kang23_eq13"\nlimit = 0.8\n'
OBJECTIVES = f'[objectives.utility_loss]\nmeasure = "test_error"\n\n{LEAKAGE}'
OPTIMIZER = 'name = "nsga2"\npopulation = 2'


FEDPARETO_PARTS = ["Bare", "Batched", "Thawed", "no_rows", "words"]  # for study files elsewhere


@dataclass(frozen=True)
class Bare:
    """A mechanism that protects nothing and has no settings."""

    def protect(self, upload: Any, values: Any, noise: Any) -> Any:
        return upload


@dataclass(frozen=True)
class Batched:
    """A mechanism with a setting that training has."""

    batch_size: int = 8

    def protect(self, upload: Any, values: Any, noise: Any) -> Any:
        return upload


@dataclass
class Thawed:
    """A mechanism that is not frozen."""

    def protect(self, upload: Any, values: Any, noise: Any) -> Any:
        return upload


def words() -> str:
    """A function of data that returns no arrays."""
    return "words"


def no_rows() -> None:
    """A function of data that fails."""
    raise LookupError("the table is empty")


# what is broken: (text of the valid study, text in its place, key that must be named, words that must be said)
BROKEN: dict[str, tuple[str, str, str, list[str]]] = {
    # wrong types
    "text for a whole number": ("budget = 2", 'budget = "two"', "budget", ["must be a whole number, found 'two'"]),
    "float for a whole number": ("rounds = 1", "rounds = 1.5", "training.rounds", ["must be a whole number, found 1.5"]),
    "true for a number": (RATE, "learning_rate = true", "training.learning_rate", ["must be a number, found True"]),
    "number for a text": ('name = "tiny"', "name = 7", "name", ["must be a text, found 7"]),
    "date for a number": ("seed = 1", "seed = 2024-01-01", "seed", ["must be a whole number", "2024"]),
    "number for a switch": (OPTIMIZER, f"{OPTIMIZER}\npenalty = 1", "optimizer.penalty", ["must be true or false, found 1"]),
    "text for a list": ('name = "lr"', 'name = "mlp"\nhidden = "32"', "model.hidden", ["list of whole numbers, found '32'"]),
    "no layers": ('name = "lr"', 'name = "mlp"\nhidden = []', "model", ["hidden", "at least one layer, found []", '"lr"']),
    "list for a section": ("[data]", "[[data]]", "data", ["must be a table", "[data]"]),
    "number for an objective": (LEAKAGE, "[objectives]\nleakage = 0.8\n", "objectives.leakage", ["must be a table", "0.8"]),
    # unknown names
    "unknown key": ("batch_size = 8", "batch_sise = 8", "training.batch_sise", ["no such key", "Did you mean 'batch_size'?"]),
    "unknown key at the top": ("budget = 2", "budgt = 2", "budgt", ["no such key", "Did you mean 'budget'?"]),
    "unknown key, unlike any": ("clients = 4", "zzz = 4", "data.zzz", ["no such key", "Known: ", "clients", "split"]),
    "unknown section": ("[training]", "[trainig]", "trainig", ["no such key", "Did you mean 'training'?"]),
    "unknown key of a model without settings": ('name = "lr"', 'name = "lr"\nhidden = [3]', "model.hidden", ["no such key"]),
    "unknown data": ('name = "digits"', 'name = "digit"', "data.name",
                     ["there is no data set 'digit'", "Did you mean 'digits'?", "the path of an .npz, .csv or .parquet file", "package.module:function"]),
    "unknown model": ('name = "lr"', 'name = "mpl"', "model.name", ["there is no 'mpl'", "Did you mean 'mlp'?"]),
    "unknown mechanism": ('name = "randomization"', 'name = "randomisation"', "mechanism.name",
                          ["there is no 'randomisation'", "Did you mean 'randomization'?"]),
    "unknown optimizer": ('name = "nsga2"', 'name = "nsga3"', "optimizer.name",
                          ["there is no 'nsga3'", "Did you mean 'nsga2'?"]),
    "unknown measure": ('measure = "test_error"', 'measure = "tets_error"', "objectives.utility_loss.measure",
                        ["there is no measure 'tets_error'", "Did you mean 'test_error'?"]),
    "limit on an objective that is no measure": (LEAKAGE, "[objectives.leakge]\nlimit = 0.8\n", "objectives.leakge",
                                                 ["there is no measure 'leakge'"]),
    "unknown key of an objective": ("limit = 0.8", "limt = 0.8", "objectives.leakage.limt", ["Did you mean 'limit'?"]),
    "unknown case": ("limit = 0.8", 'case = "best"', "objectives.leakage.case", ["one of average, worst, equal, by_size, found 'best'"]),
    # ranges
    "empty range": (CLIP, "clipping_norm = [2.0, 2.0]", "mechanism.clipping_norm", ["low < high, found [2.0, 2.0]"]),
    "reversed range": (CLIP, "clipping_norm = [4.0, 0.5]", "mechanism.clipping_norm", ["low < high, found [4.0, 0.5]"]),
    "range of nothing": (CLIP, "clipping_norm = []", "mechanism.clipping_norm", ["a range written as", "found []"]),
    "range of three": (CLIP, "clipping_norm = [1, 2, 3]", "mechanism.clipping_norm", ["a range written as", "found [1, 2, 3]"]),
    "range with a step": (CLIP, "clipping_norm = { low = 1, high = 2, step = 1 }", "mechanism.clipping_norm",
                          ["a range written as", "log = true"]),
    "range too narrow": (CLIP, "clipping_norm = [1.0, 1.000000000001]", "mechanism.clipping_norm",
                         ["wider than a billionth of its ends"]),
    "log range that touches zero": (SIGMA, "sigma = { low = 0.0, high = 1.0, log = true }", "mechanism.sigma",
                                    ["a log range must have low > 0, found low = 0.0"]),
    "range beyond the rule": (CLIP, "clipping_norm = [-1.0, 4.0]", "mechanism.clipping_norm", ["must be above 0, found -1.0"]),
    "one choice": (CLIP, "clipping_norm = { choices = [1] }", "mechanism.clipping_norm", ["at least two values, found [1.0]"]),
    "equal choices": (CLIP, "clipping_norm = { choices = [1, 1.0] }", "mechanism.clipping_norm", ["choices must differ"]),
    "range for a setting that cannot be searched": ("rounds = 1", "rounds = 1\nevaluate_every = [4, 8]", "training.evaluate_every",
                                                    ["must be a whole number, found [4, 8]", "cannot be searched"]),
    "no steps in a range of steps": ("local_steps = 10", "local_steps = [0, 4]", "training.local_steps",
                                     ["must be at least 1 where it is searched, found [0, 4]"]),
    "no images in a range of batches": ("batch_size = 8", "batch_size = [0, 8]", "training.batch_size", ["must be at least 1, found 0"]),
    "both epochs and steps, one searched": ("local_steps = 10", "local_steps = 1\nlocal_epochs = [1, 4]", "training",
                                            ["exactly one of local_epochs and local_steps", "local_epochs = [1, 4], local_steps = 1"]),
    "a server step that there is not": (OBJECTIVES, '[server]\nname = "one_of"\nserver_step = { choices = ["adam", "adma"] }\n' + OBJECTIVES,
                                        "server.server_step", ["must be one of average, momentum, adam, found 'adma'", "Did you mean 'adam'?"]),
    "range for the seed": ("seed = 1", "seed = [1, 5]", "seed", ["cannot be searched"]),
    # numbers out of bounds
    "budget of nothing": ("budget = 2", "budget = 0", "budget", ["must be at least 1, found 0"]),
    "negative seed": ("seed = 1", "seed = -1", "seed", ["must be at least 0, found -1"]),
    "huge seed": ("seed = 1", "seed = 9223372036854775808", "seed", ["must be at most", "found 9223372036854775808"]),
    "no repeats": ("budget = 2", "budget = 2\nrepeats = 0", "repeats", ["must be at least 1, found 0"]),
    "no clients": ("clients = 4", "clients = 0", "data.clients", ["must be at least 1, found 0"]),
    "no rounds": ("rounds = 1", "rounds = [0, 3]", "training.rounds", ["must be at least 1, found 0"]),
    "sample ratio above one": ("rounds = 1", "rounds = 1\nsample_ratio = 1.5", "training.sample_ratio",
                               ["must be at most 1, found 1.5"]),
    "negative noise": (SIGMA, "sigma = -0.1", "mechanism.sigma", ["must be at least 0, found -0.1"]),
    "nan": (RATE, "learning_rate = nan", "training.learning_rate", ["must be a finite number, found nan"]),
    "inf": (SIGMA, "sigma = inf", "mechanism.sigma", ["must be a finite number, found inf"]),
    "inf at the end of a range": (CLIP, "clipping_norm = [1.0, inf]", "mechanism.clipping_norm", ["finite number, found inf"]),
    "nan for a limit": ("limit = 0.8", "limit = nan", "objectives.leakage.limit", ["must be a finite number, found nan"]),
    "float too huge to hold": (SIGMA, "sigma = 1e999", "mechanism.sigma", ["must be a finite number, found inf"]),
    "huge number": (SIGMA, "sigma = 1e300", "mechanism.sigma", ["must be at most 1000000, found 1e+300"]),
    "huge whole number for a float": (SIGMA, f"sigma = 1{'0' * 400}", "mechanism.sigma",
                                      ["must lie within ±1e300, found a number of 1329 bits"]),
    "huge whole number": ("rounds = 1", f"rounds = 1{'0' * 30}", "training.rounds", ["must be at most 100000"]),
    "more digits than Python reads": ("seed = 1", f"seed = 1{'0' * 5000}", "", ["must be", "5001 digits"]),
    "more digits than Python prints": ("seed = 1", f"seed = 0x1{'0' * 5000}", "seed",
                                       ["must lie within ±1e300, found a number of 20001 bits"]),
    "more digits than Python prints, for a float": (SIGMA, f"sigma = 0x1{'0' * 5000}", "mechanism.sigma",
                                                    ["must lie within ±1e300, found a number of 20001 bits"]),
    # what must be given, and given once
    "both epochs and steps": ("local_steps = 10", "local_steps = 1\nlocal_epochs = 1", "training",
                              ["exactly one of local_epochs and local_steps", "local_epochs = 1, local_steps = 1"]),
    "neither epochs nor steps": ("local_steps = 10\n", "", "training",
                                 ["exactly one of local_epochs and local_steps", "local_epochs = 0, local_steps = 0"]),
    "no learning rate": (RATE, "", "training.learning_rate", ["must be given", "learning rate"]),
    "no noise": (SIGMA, "", "mechanism.sigma", ["exactly one of sigma and noise_multiplier must be given, found neither"]),
    "no objectives": (OBJECTIVES, "", "objectives", ["at least one, found none", "test_error"]),
    "empty objectives": (OBJECTIVES, "[objectives]\n", "objectives", ["at least one, found none"]),
    "no model": ('[model]\nname = "lr"', "", "model.name", ["must name one of", "mlp", "found nothing"]),
    "no mechanism": (MECHANISM, "", "mechanism.name", ["must name one of", "randomization", "found nothing"]),
    "settings of another optimizer": (OPTIMIZER, "population = 2", "optimizer.population", ["there is no such key"]),
    "name that is no text": (OPTIMIZER, "name = 2", "optimizer.name", ["must name one of", "found 2"]),
    "measure without a largest value": ('measure = "test_error"', 'measure = "test_loss"', "objectives.utility_loss.reference",
                                        ["must be given", "hypervolume"]),
    "key given twice": ("budget = 2", "budget = 2\nbudget = 3", "", ["must be TOML", "line 4"]),
    # the user's own classes
    "path to no module": ('name = "lr"', 'name = "no_such_module:Net"', "model.name",
                          ["'no_such_module:Net' must be importable", "ModuleNotFoundError", "Install the package"]),
    "path to what is Python's": ('name = "lr"', 'name = "subprocess:getoutput"\ncmd = "touch PWNED"', "model.name",
                                ["'subprocess:getoutput' must be in a module of yours, found subprocess, which is Python's own",
                                 "Nothing of it was run"]),
    "path to what is built in": ('name = "lr"', 'name = "builtins:exec"', "model.name", ["builtins, which is Python's own"]),
    "path to what is fedpareto's": ('name = "lr"', 'name = "fedpareto.cli:main"', "model.name", ["which is fedpareto's own"]),
    "path to what an installed package does not declare": ('name = "lr"', 'name = "scipy.optimize:minimize"', "model.name",
                                                           ["or in one that lists it in FEDPARETO_PARTS, found ",
                                                            "Nothing of it was run"]),
    "path without a class": ('name = "lr"', 'name = "mine:"', "model.name", ["'mine:' must read package.module:Name"]),
    "path without a module": ('name = "lr"', 'name = ":Net"', "model.name", ["':Net' must read package.module:Name"]),
    "path of a file": ('name = "lr"', 'name = "../mine.py:Net"', "model.name", ["'../mine.py:Net' must read package.module:Name"]),
    "path to what is no optimizer": (OPTIMIZER, f'name = "{__name__}:Bare"', "optimizer.name",
                                     [f"'{__name__}:Bare' must be a frozen dataclass of settings with a method 'propose'"]),
    "path to what is no model": ('name = "lr"', f'name = "{__name__}:Bare"', "model.name",
                                 [f"'{__name__}:Bare' must be a frozen dataclass of settings with a method 'build', an nn.Module"]),
    "path to what is no mechanism": (f"{MECHANISM}\n{OBJECTIVES}", f'[mechanism]\nname = "{__name__}:words"\n'
                                     '[objectives.test_error]\n', "mechanism.name",
                                     [f"'{__name__}:words' must be a frozen dataclass of settings with a method 'protect'"]),
    "path to what is not frozen": (f"{MECHANISM}\n{OBJECTIVES}", f'[mechanism]\nname = "{__name__}:Thawed"\n'
                                   '[objectives.test_error]\n', "mechanism.name", ["must be a frozen dataclass of settings"]),
    "path to what makes no module": ('name = "lr"', f'name = "{__name__}:words"', "model",
                                     [f"'{__name__}:words' must make an nn.Module, found 'words'"]),
    "path to what cannot be called so": ('name = "lr"', f'name = "{__name__}:words"\nwidth = 8', "model.name",
                                         [f"'{__name__}:words' must be built by a call with {{\"width\": 8}}, found TypeError: words() ",
                                          "Give it the keys it takes."]),
    "mechanism with a setting that training has": (f"{MECHANISM}\n{OBJECTIVES}", f'[mechanism]\nname = "{__name__}:Batched"\n'
                                                   '[objectives.test_error]\n', "mechanism.batch_size",
                                                   ["must have a name of its own, found one that [training] has: batch_size"]),
    "measure that the mechanism cannot give": (MECHANISM, f'[mechanism]\nname = "{__name__}:Bare"\n',
                                               "objectives.leakage.measure", ["needs a mechanism with sigma", "found Bare"]),
    # text that is no TOML
    "syntax": ("clients = 4", "clients = ", "", ["must be TOML", "line 7"]),
    "unclosed text": ('name = "tiny"', 'name = "tiny', "", ["must be TOML", "line 1"]),
    "deeper than any study": ("seed = 1", f"seed = {'[' * 3000}{']' * 3000}", "", ["must be"]),
    # found only once the data are there
    "more clients than images": ("clients = 4", "clients = 2000", "data.clients",
                                 ["every client needs an image", "at most 1,438 clients", "found 2,000"]),
    "own data that are not there": ('name = "digits"', 'name = "no/such.npz"', "data.name",
                                    ["no/such.npz must be an .npz file, found none"]),
    "path to no module of data": ('name = "digits"', 'name = "no_such_module:make"', "data.name",
                                  ["'no_such_module:make' must be importable", "ModuleNotFoundError", "Install the package"]),
    "path to no function of data": ('name = "digits"', f'name = "{__name__}:make"', "data.name",
                                    ["must be in a module beside the study file, or in one that lists it in FEDPARETO_PARTS"]),
    "path to what is no function of data": ('name = "digits"', f'name = "{__name__}:Bare"', "data.name",
                                            [f"'{__name__}:Bare' must be a function, found <class"]),
    "data of Python's": ('name = "digits"', 'name = "os:getcwd"', "data.name", ["os, which is Python's own"]),
    "loss of Python's": ("rounds = 1", 'rounds = 1\nloss = "os:system"', "training.loss", ["os, which is Python's own"]),
    "measure of Python's": ('measure = "test_error"', 'measure = "os:abort"\nreference = 1.0', "objectives.utility_loss.measure",
                            ["os, which is Python's own"]),
    "function of data that fails": ('name = "digits"', f'name = "{__name__}:no_rows"', f"data.name: '{__name__}:no_rows'",
                                    ["must be a function that returns the arrays", "found LookupError: the table is empty."]),
    "function of data that gives others": ('name = "digits"', f'name = "{__name__}:words"', f"{__name__}:words",
                                           ["must hold the arrays x_train, y_train, x_test, y_test, found str"]),
    "more shards than images": ("clients = 4", 'clients = 800\nsplit = "shards"', "data.shards",
                                ["every shard must hold an image, so clients × shards at most 1,438, found 1,600. Lower either."]),
    "clients without images": ("clients = 4", 'clients = 500\nsplit = "dirichlet"\nalpha = 0.001', "data.split",
                               ["every client must hold an image", "in the last of 50 dirichlet splits. Raise data.alpha, or lower"]),
}


def broken(study: Path, name: str) -> Path:
    """Break the study file at this path."""
    old, new, *_ = BROKEN[name]
    text = study.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    study.write_text(text.replace(old, new, 1), encoding="utf-8")
    return study


def dump(db: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(db)) as opened:
        return list(opened.iterdump())


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_study_is_refused_in_words_that_help_and_no_database_is_made(
        tiny_study: Path, fedpareto: Callable[..., tuple[int, str, str]], name: str) -> None:
    _, _, key, words = BROKEN[name]
    status, out, err = fedpareto("run", broken(tiny_study, name))
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert key in err
    for word in words:
        assert word in err
    assert [file.name for file in tiny_study.parent.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_study_leaves_the_rows_it_has_alone(
        finished_study: Path, fedpareto: Callable[..., tuple[int, str, str]], name: str) -> None:
    db = finished_study.with_suffix(".db")
    before = dump(db)
    assert sum(line.startswith('INSERT INTO "trials"') and "done" in line for line in before) == 2
    assert fedpareto("run", broken(finished_study, name))[0] == 2
    assert dump(db) == before


@pytest.mark.parametrize("verb", ["run", "front", "pick", "report", "verify"])
def test_every_verb_refuses_a_broken_study_in_the_same_words(
        finished_study: Path, fedpareto: Callable[..., tuple[int, str, str]], verb: str) -> None:
    broken(finished_study, "reversed range")
    before = dump(finished_study.with_suffix(".db"))
    status, out, err = fedpareto(verb, finished_study)
    assert (status, out) == (2, "")
    assert err == (f"error: {finished_study}: line 21, mechanism.clipping_norm: a range must have low < high, "
                   "found [4.0, 0.5].\n")
    assert dump(finished_study.with_suffix(".db")) == before


@pytest.mark.parametrize("name", ["unknown key", "syntax"])
def test_a_broken_study_is_refused_so_in_a_process_of_its_own(tiny_study: Path, name: str) -> None:
    _, _, key, words = BROKEN[name]
    command = [sys.executable, "-c", "from fedpareto.cli import main; main()", "run", str(broken(tiny_study, name))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: {tiny_study}: ")
    assert ended.stderr.count("\n") == 1
    assert key in ended.stderr
    assert all(word in ended.stderr for word in words)
    assert not tiny_study.with_suffix(".db").exists()


def test_all_faults_of_a_file_are_told_at_once_each_with_its_line(
        tiny_study: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    for name in ("unknown key at the top", "negative seed", "no clients", "unknown model", "unknown key", "nan",
                 "log range that touches zero", "reversed range", "unknown measure", "nan for a limit", "unknown optimizer"):
        broken(tiny_study, name)
    status, _, err = fedpareto("run", tiny_study)
    first, *lines = err.splitlines()
    assert (status, first) == (2, f"error: {tiny_study}: 11 faults")
    told = {tuple(line.split(": ")[0].split(", ")) for line in lines}
    assert told == {
        ("  line 2", "seed"), ("  line 3", "budgt"), ("  line 7", "data.clients"), ("  line 10", "model.name"),
        ("  line 15", "training.batch_sise"), ("  line 16", "training.learning_rate"), ("  line 20", "mechanism.sigma"),
        ("  line 21", "mechanism.clipping_norm"), ("  line 24", "objectives.utility_loss.measure"),
        ("  line 28", "objectives.leakage.limit"), ("  line 31", "optimizer.name")}


def test_faults_read_from_python_carry_key_line_and_message(tiny_study: Path) -> None:
    broken(tiny_study, "negative seed")
    with pytest.raises(StudyError) as refused:
        load_study(broken(tiny_study, "no noise"))
    assert refused.value.path == str(tiny_study)
    assert {(fault.key, fault.line) for fault in refused.value.faults} == {("seed", 2), ("mechanism.sigma", 18)}


def test_a_fault_of_the_command_line_is_not_blamed_on_a_line_of_the_file(
        tiny_study: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    status, _, err = fedpareto("run", tiny_study, "--budget", 0)
    assert status == 2
    assert "budget" in err
    assert "must be at least 1, found 0." in err
    assert "line 3" not in err  # which says budget = 2


def test_a_missing_file_is_refused_with_the_nearest_name(
        tiny_study: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    missing = tiny_study.with_name("tny.toml")
    assert fedpareto("run", missing) == (
        2, "", f"error: {missing}: file: must exist, found nothing there. Did you mean 'tiny.toml'?\n")


def test_a_missing_file_in_a_missing_folder_is_refused(
        tmp_path: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    missing = tmp_path / "no" / "tiny.toml"
    assert fedpareto("run", missing) == (2, "", f"error: {missing}: file: must exist, found nothing there. Check the path.\n")


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = fedpareto("run", tmp_path)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}: file: must be a readable TOML text file, found: ")
    assert "directory" in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_utf8_is_refused(tiny_study: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    tiny_study.write_bytes(tiny_study.read_bytes().replace(b"tiny", "zürich".encode("latin-1")))
    status, out, err = fedpareto("run", tiny_study)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tiny_study}: file: must be a readable TOML text file, found: 'utf-8'")
    assert not tiny_study.with_suffix(".db").exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00\x01\x02", b"SQLite format 3\x00", b"name"])
def test_a_file_with_nothing_of_a_study_in_it_is_refused(
        tiny_study: Path, fedpareto: Callable[..., tuple[int, str, str]], content: bytes) -> None:
    tiny_study.write_bytes(content)
    status, out, err = fedpareto("run", tiny_study)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tiny_study}: ")
    assert not tiny_study.with_suffix(".db").exists()


def test_a_valid_study_that_is_not_the_one_whose_rows_these_are_is_refused(
        finished_study: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    before = dump(finished_study.with_suffix(".db"))
    finished_study.write_text(finished_study.read_text().replace("batch_size = 8", "batch_size = 16"))
    for verb in ("run", "front"):
        status, out, err = fedpareto(verb, finished_study)
        assert (status, out) == (2, "")
        assert "differs in training.batch_size (8 there, 16 here)" in err
        assert "undo the change" in err
        assert "name a new database with --db" in err
    assert dump(finished_study.with_suffix(".db")) == before


def test_a_study_whose_objectives_come_in_another_order_is_another_study(
        finished_study: Path, fedpareto: Callable[..., tuple[int, str, str]]) -> None:
    before = dump(finished_study.with_suffix(".db"))
    utility = OBJECTIVES.removesuffix(LEAKAGE)
    text = finished_study.read_text()
    assert OBJECTIVES in text
    finished_study.write_text(text.replace(OBJECTIVES, f"{LEAKAGE}\n{utility}"))
    status, out, err = fedpareto("run", finished_study)
    assert (status, out) == (2, "")
    assert "must belong to this study, found one that differs in objectives (" in err
    assert dump(finished_study.with_suffix(".db")) == before


def test_a_study_names_its_objectives_in_their_order(tiny_study: Path) -> None:
    assert [objective["name"] for objective in load_study(tiny_study).identity["objectives"]] == ["utility_loss", "leakage"]
