"""The shape of the package: imports point down, public names are complete, --help is quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedpareto

ROOT = Path(fedpareto.__file__).parent

# From the bottom up. A module imports from layers below its own; parts of one folder may import one another.
LAYERS = [
    {"errors", "files", "threads"},
    {"space"},
    {"settings", "problem", "history", "front", "noise", "crypto", "contract"},
    {"mechanisms", "privacy"},
    {"federation", "optimizers", "theory"},
    {"trials"},
    {"store"},
    {"study"},
    {"evaluate"},
    {"keep"},
    {"loop", "report", "testing"},
    {"design", "reproduce"},
    {"cli"},
    {"__main__"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def parts_imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedpareto."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fedpareto."))


def modules():
    return [p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    me = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for part in parts_imported(path):
        if part != me:
            assert LEVEL[part] < LEVEL[me], f"{me} imports {part}, which is not below it"


def test_every_part_has_a_layer():
    assert {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in modules()} == set(LEVEL)


def test_public_names_are_sorted_and_load():
    assert fedpareto.__all__ == sorted(fedpareto.__all__)
    for name in fedpareto.__all__:
        assert getattr(fedpareto, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedpareto.nothing  # noqa: B018


def test_public_names_are_typed():
    """What loads on first use is also imported for type checkers."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(fedpareto.__all__) <= imported


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["--version"]])
def test_help_needs_no_torch(argv):
    code = ("import sys; from click.testing import CliRunner; from fedpareto.cli import cli; "
            f"r = CliRunner().invoke(cli, {argv}); print(r.exit_code, 'torch' in sys.modules, 'numpy' in sys.modules)")
    assert run_python(code).split() == ["0", "False", "False"]


def test_files_and_functions_stay_small():
    for path in modules():
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"


def test_no_concrete_class_inherits_from_another():
    """Protocols and errors aside."""
    own = {node.name for path in modules() for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
    for path in modules():
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                assert not {ast.unparse(base) for base in node.bases} & own, f"{path}: {node.name}"
