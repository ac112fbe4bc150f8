"""Code of the user's own: what a study file may name, what is said before it runs, and how it may end."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import py_compile
import signal
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest
from torch import nn

from fedpareto.errors import (
    CodeEnded,
    SettingError,
    StudyError,
    clean,
    guarded,
    out_of_memory,
    shown,
    told,
)
from fedpareto.federation.stack import stack
from fedpareto.settings import own
from fedpareto.study import load_study

pytestmark = pytest.mark.usefixtures("as_if_first")

PARTS = '''
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import getoutput

import torch
from fedpareto.settings import Real
from torch import nn

Path(__file__).with_name("IMPORTED").touch()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1))

class Other:
    pass

@dataclass(frozen=True)
class Signs:
    step: Real
    def protect(self, upload, values, noise):
        return upload

def net():
    return Net()

def leaves():
    raise SystemExit(0)
'''


@pytest.fixture
def parts(tiny_study):
    path = tiny_study.with_name("own_parts_of_a_test.py")
    path.write_text(textwrap.dedent(PARTS))
    importlib.invalidate_caches()
    return path


def with_model(study, name, more=""):
    text = study.read_text().replace('name = "lr"', f'name = "{name}"\n{more}')
    study.write_text(text)
    return study


def refused(study):
    with pytest.raises(StudyError) as found:
        load_study(study)
    return str(found.value)


@pytest.mark.parametrize("name", ["subprocess:getoutput", "os:system", "builtins:exec", "runpy:run_path", "posix:system",
                                  "fedpareto.cli:main", "torch.utils.cpp_extension:load", "pip:main", "__main__:main"])
def test_code_that_is_not_the_users_own_is_refused_before_it_is_imported(tiny_study, fedpareto, name):
    with_model(tiny_study, name, 'cmd = "touch PWNED"')
    before = set(sys.modules)
    status, out, err = fedpareto("run", tiny_study)
    assert (status, out) == (2, "")
    assert "model.name: " in err
    assert "Nothing of it was run" in err or "must be importable" in err
    assert name.partition(":")[0] in before or name.partition(":")[0] not in sys.modules
    assert [p.name for p in tiny_study.parent.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize("name", ["Net", "net"])
def test_a_model_beside_the_study_file_is_loaded_and_its_file_and_hash_are_named_first(tiny_study, parts, caplog, name):
    load_study(with_model(tiny_study, f"own_parts_of_a_test:{name}"))
    digest = hashlib.sha256(parts.read_bytes()).hexdigest()
    assert [r.getMessage() for r in caplog.records] == [f"runs your own code: {parts}, SHA-256 {digest}"]
    load_study(tiny_study)
    assert len(caplog.records) == 1


def hashed(path):
    return f"runs your own code: {path}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_a_folder_named_with_escape_codes_does_not_reach_the_terminal(tiny_study, parts, caplog):
    folder = tiny_study.parent / "red\x1b[31m"
    folder.mkdir()
    parts.rename(folder / parts.name)
    load_study(with_model(tiny_study, "own_parts_of_a_test:Net").rename(folder / "tiny.toml"))
    assert "\\u001b[31m" in caplog.records[0].getMessage()
    assert "\x1b" not in caplog.records[0].getMessage()


def test_code_may_import_what_lies_beside_it_and_each_file_is_named(tiny_study, parts, caplog):
    helper, package = parts.with_name("helper_of_a_test.py"), parts.with_name("package_of_a_test")
    helper.write_text("import importlib\nwidth = importlib.import_module('package_of_a_test.inner').width\n")
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("from . import deeper\nwidth = deeper.width\n")
    (package / "deeper.py").write_text("width = 10\n")
    parts.write_text(parts.read_text().replace("nn.Linear(64, 10)", "nn.Linear(64, width)").replace("import torch\n", "import torch\nfrom helper_of_a_test import width\n"))
    load_study(with_model(tiny_study, "own_parts_of_a_test:Net"))
    said = [r.getMessage() for r in caplog.records]
    assert said == [hashed(f) for f in (parts, helper, package / "__init__.py", package / "inner.py", package / "deeper.py")]
    assert not list(tiny_study.parent.rglob("__pycache__"))


def test_a_file_that_only_others_import_is_not_found_beside_a_study(tiny_study, parts, caplog):
    parts.with_name("unnamed_of_a_test.py").write_text("raise SystemExit('was run')\n")
    load_study(with_model(tiny_study, "own_parts_of_a_test:Net"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("unnamed_of_a_test")
    assert len(caplog.records) == 1


def test_bytecode_beside_a_study_is_not_run_in_place_of_the_file_that_is_named(tiny_study, parts):
    """A past finding: a file in __pycache__ that is never checked ran, under the hash of the source."""
    evil = parts.with_name("evil.py")
    evil.write_text("from pathlib import Path\nPath(__file__).with_name('PWNED').touch()\n")
    planted = importlib.util.cache_from_source(str(parts))
    py_compile.compile(str(evil), cfile=planted, dfile=str(parts), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    load_study(with_model(tiny_study, "own_parts_of_a_test:Net"))
    assert not parts.with_name("PWNED").exists()
    assert parts.with_name("IMPORTED").exists()


def test_an_installed_package_comes_before_a_file_beside_a_study(tiny_study, parts):
    parts.with_name("click.py").write_text("raise SystemExit('was run')\n")
    parts.write_text("import click\n" + parts.read_text())
    assert "which does not. Nothing of it was run" in refused(with_model(tiny_study, "click:Net"))
    tiny_study.write_text(tiny_study.read_text().replace("click:Net", "own_parts_of_a_test:Net"))
    load_study(tiny_study)


def test_what_a_module_merely_imports_is_no_part_of_a_study(tiny_study, parts):
    with_model(tiny_study, "own_parts_of_a_test:getoutput", 'cmd = "touch PWNED"')
    assert "must be defined in own_parts_of_a_test, found one of 'subprocess'" in refused(tiny_study)
    assert not tiny_study.with_name("PWNED").exists()


def test_a_class_that_is_no_module_is_no_model(tiny_study, parts):
    assert "with a method 'build', an nn.Module or a function" in refused(with_model(tiny_study, "own_parts_of_a_test:Other"))


def test_a_module_elsewhere_must_list_its_parts_and_is_not_imported_to_say_so(tiny_study, parts, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    parts = parts.rename(folder / parts.name)
    monkeypatch.syspath_prepend(str(folder))
    with_model(tiny_study, "own_parts_of_a_test:Net")
    message = refused(tiny_study)
    assert 'Write FEDPARETO_PARTS = ["Net"] into it' in message
    assert not (folder / "IMPORTED").exists()
    parts.write_text('FEDPARETO_PARTS = ["Net"]\n' + parts.read_text())
    load_study(tiny_study)
    assert (folder / "IMPORTED").exists()


@pytest.mark.parametrize("text", ["FEDPARETO_PARTS = list_of_parts()", "FEDPARETO_PARTS = [3]", "def broken(:", "\0"])
def test_a_list_of_parts_that_cannot_be_read_lists_nothing(tiny_study, tmp_path, monkeypatch, text):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "odd_parts_of_a_test.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(str(folder))
    assert "lists it in FEDPARETO_PARTS" in refused(with_model(tiny_study, "odd_parts_of_a_test:Net"))


def test_a_link_to_a_file_elsewhere_lies_where_it_was_put(tiny_study, parts, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    parts.rename(folder / parts.name)
    parts.symlink_to(folder / parts.name)
    load_study(with_model(tiny_study, "own_parts_of_a_test:Net"))


def test_a_module_made_in_python_is_found_from_python_and_not_from_a_study_file(tiny_study, monkeypatch):
    made = ModuleType("made_by_a_test")
    made.loss = lambda scores, labels: scores
    monkeypatch.setitem(sys.modules, "made_by_a_test", made)
    assert own.imported("made_by_a_test:loss") is made.loss
    with pytest.raises(SettingError, match="'made_by_a_test:gone' must be importable, found AttributeError"):
        own.imported("made_by_a_test:gone")
    assert "must be importable, found ModuleNotFoundError" in refused(with_model(tiny_study, "made_by_a_test:loss"))


def test_two_studies_with_modules_of_one_name_do_not_get_each_others(tiny_study, parts, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / parts.name).write_text(parts.read_text())
    (other / "tiny.toml").write_text(with_model(tiny_study, "own_parts_of_a_test:Net").read_text())
    load_study(tiny_study)
    assert f"found {parts}" in refused(other / "tiny.toml")


@pytest.mark.parametrize(("text", "words"), [
    ("raise SystemExit(0)", "SystemExit: 0"), ("import sys; sys.exit('bye')", "SystemExit: bye"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt: no message"), ("raise GeneratorExit", "GeneratorExit: no message"),
    ("raise ValueError('\\udc80 odd')", r"ValueError: \udc80 odd"), ("def broken(:", "SyntaxError"),
    ("raise ExceptionGroup('many', [ValueError(1)])", "ExceptionGroup: many"), ("x = 1", "AttributeError: module"),
])
def test_a_module_that_fails_or_ends_the_program_on_import_is_an_error_in_words(tiny_study, fedpareto, text, words):
    tiny_study.with_name("ends_on_import_of_a_test.py").write_text(f"{text}\n")
    importlib.invalidate_caches()
    status, out, err = fedpareto("run", with_model(tiny_study, "ends_on_import_of_a_test:Net"))
    assert (status, out) == (2, "")
    assert f"'ends_on_import_of_a_test:Net' must be importable, found {words}" in err
    assert not tiny_study.with_suffix(".db").exists()


ENDING = '''
from dataclasses import dataclass
from fedpareto.settings import Real

@dataclass(frozen=True)
class Ends:
    step: Real = 1.0
    def protect(self, upload, values, noise):
        raise {error}
'''


@pytest.mark.parametrize(("error", "reason"), [
    ("SystemExit(0)", "SystemExit: 0"), ("KeyboardInterrupt", "KeyboardInterrupt: no message"), ("GeneratorExit", "GeneratorExit: no message"),
    ("ValueError('\\udc80\\x1b[2J')", r"ValueError: \udc80\x1b[2J"), ("MemoryError('big')", "out of memory, even trained alone: big"),
])
def test_own_code_that_ends_the_program_during_a_training_is_a_failed_row(tiny_study, fedpareto, error, reason):
    tiny_study.with_name("ends_in_training_of_a_test.py").write_text(ENDING.format(error=error))
    importlib.invalidate_caches()
    text = tiny_study.read_text().replace('name = "randomization"', 'name = "ends_in_training_of_a_test:Ends"')
    text = text.replace("sigma = { low = 0.01, high = 1.0, log = true }", "").replace("clipping_norm = [0.5, 4.0]", "")
    text = text.replace("kang23_eq13", "upload_bytes").replace("limit = 0.8", "reference = 1e6")
    tiny_study.write_text(text)
    status, out, _ = fedpareto("run", tiny_study)
    assert status == 0
    assert f"failed: trial 0: {reason}" in out


@pytest.mark.parametrize("part", ["model", "data", "measure", "loss"])
def test_own_code_that_ends_the_program_before_any_training_is_an_error(tiny_study, parts, fedpareto, part):
    old, new = {"model": ('name = "lr"', "name = {}"), "data": ('name = "digits"', "name = {}"),
                "measure": ('measure = "test_error"', "measure = {}\nreference = 1.0"),
                "loss": ("rounds = 1", "rounds = 1\nloss = {}")}[part]
    parts.write_text(parts.read_text().replace("def leaves():", "def leaves(*given):"))
    tiny_study.write_text(tiny_study.read_text().replace(old, new.format('"own_parts_of_a_test:leaves"')))
    status, out, err = fedpareto("run", tiny_study)
    assert (status, out) == (2, "")
    assert "SystemExit: 0" in err
    assert not tiny_study.with_suffix(".db").exists()


def test_an_optimizer_that_ends_the_program_is_an_error_and_no_silence(tiny_study):
    tiny_study.with_name("own_search_of_a_test.py").write_text(
        "import sys\nfrom dataclasses import dataclass\n@dataclass(frozen=True)\nclass Ends:\n    batch: int = 2\n"
        "    def propose(self, *given):\n        sys.exit(0)\n")
    text = tiny_study.read_text().replace('name = "nsga2"\npopulation = 2', 'name = "own_search_of_a_test:Ends"')
    tiny_study.write_text(text)
    ended = subprocess.run([sys.executable, "-m", "fedpareto", "run", str(tiny_study)], capture_output=True, text=True,
                           timeout=120, check=False, cwd=tiny_study.parent)
    assert ended.returncode == 2
    assert "error: run: code of your own must return, found that it ended the program by SystemExit: 0" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_in_own_code_still_ends_the_program():
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt), guarded():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, outside)


def test_an_interrupt_that_own_code_raises_itself_is_an_error_of_its_own():
    with pytest.raises(CodeEnded, match="KeyboardInterrupt: mine"), guarded():
        raise KeyboardInterrupt("mine")


def test_what_messages_show_can_be_stored_and_is_short():
    deep = []
    for _ in range(100_000):
        deep = [deep]

    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert clean("a\udc80\x00\tb\u202e") == r"a\udc80\x00" + "\tb" + r"\u202e"
    assert clean("x" * 5000).endswith("… (5,000 characters)")
    assert shown(10**5000) == "a int that cannot be printed"
    assert "too deep to print" in shown(deep)
    assert shown("a" * 400).endswith("… (402 characters)")
    assert told(Mute()) == "Mute: a message that cannot be read"
    assert told(ValueError("\n")) == "ValueError: no message"
    assert out_of_memory(RuntimeError("first\nDefaultCPUAllocator: can't allocate memory"))


class Large(nn.Module):
    """A module that fits into memory alone, and not side by side."""

    def __init__(self, error, calls):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.error = error
        self.calls = calls

    def forward(self, x):
        if self.calls == 0:
            raise self.error
        self.calls -= 1
        return self.layer(x)


@pytest.mark.parametrize("calls", [0, 2])  # alone, and when stacked
@pytest.mark.parametrize("error", [MemoryError("large"), RuntimeError("CUDA out of memory")])
def test_out_of_memory_while_models_are_stacked_is_told_as_such(error, calls):
    with pytest.raises(type(error), match=str(error)):
        stack(Large(error, calls), (4,), 3)
