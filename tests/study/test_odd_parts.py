"""Parts of the user's own that cannot be made or break their contract: an error in words that says where, and no endless run."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tiny import STUDY

from fedpareto import run
from fedpareto.cli import main
from fedpareto.errors import StudyError
from fedpareto.study import load_study

pytestmark = pytest.mark.usefixtures("as_if_first")

HEAD = """\
from dataclasses import dataclass, field
import numpy as np
import torch, typing

@dataclass(frozen=True)
class Part:
"""
METHODS = {
    "mechanism": "    def protect(self, upload, values, noise):\n        return upload\n",
    "optimizer": "    batch: int = 2\n    def propose(self, problem, history, n, seed):\n        return np.zeros((n, len(problem.space)))\n",
    "server": "    def start(self, models, values):\n        return ()\n    def step(self, models, mean, memory, values):\n        return models + mean, memory\n"}
MAKING = "    size: float = 1.0\n    def __post_init__(self):\n        "
ODD = {  # settings that cannot be made → what is said of them
    "a name that is no hint": ("    size: 'Nonexistent' = 1.0\n", "Part must be made of its settings, found NameError: name 'Nonexistent' is not defined."),
    "words for a hint": ("    size: 'no hint' = 1.0\n", "Part must be made of its settings, found SyntaxError: Forward reference must be an expression"),
    "a hint of no kind": ("    size: dict\n", "settings: a field must be float, int, str, bool or tuple[int, ...], found <class 'dict'>."),
    "a function for a default": ("    size: typing.Callable = print\n", "Part must hold numbers, texts, truth values and lists of whole numbers, found <built-in function print> as its size."),
    "a default that cannot be made": ("    size: list = field(default_factory=lambda: 1 / 0)\n", "found ZeroDivisionError: division by zero, in {file}, line 7."),
    "a KeyError": (MAKING + "raise KeyError('x')\n", "Part must be made of its settings, found KeyError: 'x', in {file}, line 9."),
    "an end of the program": (MAKING + "raise SystemExit(0)\n", "found SystemExit: 0, in {file}, line 9."),
    "an error of no known kind": (MAKING + "raise BaseException('b')\n", "found BaseException: b, in {file}, line 9."),
    "an error that cannot be read": (MAKING + "raise type('E', (Exception,), {'__str__': lambda e: 1 / 0})\n", "found E: a message that cannot be read, in {file}, line 9."),
    "a call without end": (MAKING + "self.__post_init__()\n", "found RecursionError: maximum recursion depth exceeded"),
    "something else than itself": ("    size: float = 1.0\n    def __new__(cls, *a, **k):\n        return 3\n", "Part must make one of itself, found 3."),
    "settings that cannot be read": ("    size: float = 1.0\n    def __getattribute__(self, name):\n        raise RuntimeError('no')\n", "found RuntimeError: no, in {file}, line 9.")}


def written(folder: Path, family: str, body: str) -> Path:
    """Write a study with a part of one's own, and return its path."""
    (folder / "odd.py").write_text(HEAD + body)
    path = folder / "tiny.toml"
    before, rest = STUDY.split("[mechanism]")
    objective, optimizer = rest[rest.index("[objectives.utility_loss]"):rest.index("[objectives.leakage]")], rest[rest.index("[optimizer]"):]
    parts = {"mechanism": '[mechanism]\nname = "none"\n', "server": "", "optimizer": optimizer} | {family: f'[{family}]\nname = "odd:Part"\n'}
    path.write_text(f"{before}{parts['mechanism']}{parts['server']}{objective}[objectives.training_seconds]\nreference = 1e9\n{parts['optimizer']}")
    return path


@pytest.mark.parametrize("family", METHODS)
@pytest.mark.parametrize("name", ODD)
def test_a_part_that_cannot_be_made_is_a_fault_with_its_line(tmp_path, family, name):
    body, said = ODD[name]
    path = written(tmp_path, family, body + METHODS[family])
    with pytest.raises(StudyError) as refused:
        load_study(path)
    assert [fault.key for fault in refused.value.faults] == [f"{family}.name"]
    assert refused.value.faults[0].line == path.read_text().split("\n").index('name = "odd:Part"') + 1
    assert said.format(file=tmp_path / "odd.py") in str(refused.value)


PROPOSED = {  # what an optimizer returns in place of points [n,d]
    "nothing": "None", "a text": "'points'", "lists that do not fit": "[[0]] * (n - 1) + [[0, 0]]", "no point": "np.zeros((0, d))", "a point too few": "np.zeros((n - 1, d))",
    "points too many": "np.zeros((n + 3, d))", "columns too many": "np.zeros((n, d + 4))", "what is no number": "np.full((n, d), np.nan)",
    "without end": "np.full((n, d), np.inf)", "objects": "np.full((n, d), None)", "complex": "np.zeros((n, d), complex)", "a tensor that learns": "torch.zeros(n, d, requires_grad=True)"}


def ended(monkeypatch, path: Path) -> str:
    """Run a study as a shell does, and return its error."""
    err = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["fedpareto", "run", str(path)])
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    return err.getvalue()


@pytest.mark.parametrize("name", PROPOSED)
def test_an_optimizer_that_proposes_no_points_is_told_so_and_the_run_ends(tmp_path, monkeypatch, name):
    """A past finding: where it proposed too few, the run went on for ever."""
    body = f"    batch: int = 2\n    def propose(self, problem, history, n, seed):\n        d = len(problem.space)\n        return {PROPOSED[name]}\n"
    assert "\nerror: optimizer: propose must return an array [2, 1] of finite numbers, a row for each of 2 points, found " in ended(
        monkeypatch, written(tmp_path, "optimizer", body))


@pytest.mark.parametrize("points", ["[[0] * d] * n", "torch.zeros(n, d)", "np.zeros((n, d), int)", "np.zeros((n, d), 'f4')"])
def test_an_optimizer_may_return_anything_that_numpy_takes_for_points(tmp_path, points):
    body = f"    batch: int = 2\n    def propose(self, problem, history, n, seed):\n        d = len(problem.space)\n        return {points}\n"
    with run(load_study(written(tmp_path, "optimizer", body))) as store:
        assert [t.state for t in store.trials()] == ["done", "done"]


@pytest.mark.parametrize("batch", ["0", "-1", "2.5", "'a'", "None", "[1]", "10**9"])
def test_an_optimizer_says_by_a_whole_number_how_many_points_it_proposes(tmp_path, batch):
    body = f"    @property\n    def batch(self):\n        return {batch}\n    def propose(self, problem, history, n, seed):\n        return None\n"
    with pytest.raises(StudyError, match="Part must say by its batch how many points it proposes at once, a whole number above 0, found"):
        load_study(written(tmp_path, "optimizer", body))


def test_code_of_ones_own_that_fails_anywhere_is_named_with_its_line(tmp_path, monkeypatch):
    body = "    batch: int = 2\n    def propose(self, problem, history, n, seed):\n        return {}['x']\n"
    assert f"error: run: code of your own must work, found KeyError: 'x', in {tmp_path / 'odd.py'}, line 9." in ended(
        monkeypatch, written(tmp_path, "optimizer", body))


def test_a_part_that_cannot_be_called_as_its_contract_says_is_an_error_in_words(tmp_path, monkeypatch):
    body = "    def start(self):\n        return ()\n    def step(self):\n        return ()\n"
    assert "error: run: code of your own must keep the contract of each part, found TypeError: Part.start() takes 1 positional argument but 3" in ended(
        monkeypatch, written(tmp_path, "server", body))


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    from fedpareto import study

    monkeypatch.setattr(study, "load_study", lambda *a: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["fedpareto", "run", "tiny.toml"])
    with pytest.raises(ZeroDivisionError):
        main()
