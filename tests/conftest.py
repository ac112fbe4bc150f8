"""What several test files share: a tiny study that runs in a moment, and the command line called in place."""

from __future__ import annotations

import math
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from tiny import STUDY

from fedpareto.settings import beside, own
from fedpareto.threads import wait_passively

wait_passively()  # before torch is loaded: threads that spin stop everything on a busy machine
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # pytest was started in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("tests", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("wide", deadline=None, max_examples=2000)
settings.load_profile("tests")  # pytest --hypothesis-profile=wide looks further


class Finished(NamedTuple):
    """What a call of the command line left behind."""

    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules of a test's own folder: the next test may have others of these names."""
    before = set(sys.modules)
    yield
    made_up = str(tmp_path_factory.getbasetemp())

    def is_made_up(module: object) -> bool:
        return (getattr(module, "__file__", None) or "").startswith(made_up)

    for name in set(sys.modules) - before:
        if is_made_up(sys.modules[name]):
            del sys.modules[name]
    for name, (module, _) in list(own._loaded.items()):
        if is_made_up(module):
            del own._loaded[name]


@pytest.fixture
def study_text() -> str:
    """A valid study file: two trials of one round, on the digits."""
    return STUDY


@pytest.fixture
def tiny_study(tmp_path: Path) -> Path:
    """The path of a valid study file, alone in its folder."""
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def _finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fedpareto import load_study, run

    path = tmp_path_factory.mktemp("finished") / "tiny.toml"
    path.write_text(STUDY, encoding="utf-8")
    run(load_study(path)).close()
    return path


@pytest.fixture
def finished_study(_finished_once: Path, tiny_study: Path) -> Path:
    """The path of a valid study file whose database, beside it, holds two finished trials."""
    shutil.copy(_finished_once.with_suffix(".db"), tiny_study.with_suffix(".db"))
    return tiny_study


@pytest.fixture
def fedpareto(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """The command line, called in this process: fedpareto("run", path)."""
    from fedpareto.cli import main

    for name in ("FIRST", "WORTH_SAYING"):  # a slow machine prints no more
        monkeypatch.setattr(f"fedpareto.report.progress.{name}", math.inf)

    def call(*words: object) -> Finished:
        monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return Finished(ended.value.code, shown.out, shown.err)

    return call


@pytest.fixture
def as_if_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no module of a user's own have been read before; `forgotten` takes away what a test loads."""
    monkeypatch.setattr(own, "_loaded", {})
    for held, empty in (("_folders", []), ("_ours", set()), ("_said", set())):
        monkeypatch.setattr(beside, held, empty)
