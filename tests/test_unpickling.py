"""Nothing unpickles a file: that could run code or stop the process."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedpareto

ROOT = Path(fedpareto.__file__).parent
UNPICKLERS = {"pickle", "_pickle", "cPickle", "pickletools", "marshal", "shelve", "dill", "cloudpickle", "joblib", "copyreg"}
OWN_CHILDREN = ROOT / "crypto" / "parallel.py"  # reads what its own forks write to a pipe, and no file


def faults(text: str) -> list[str]:
    """Return what in a module's text unpickles or may."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNPICKLERS]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in UNPICKLERS:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("np.load", "numpy.load", "torch.load", "np.lib.format.read_array", "pd.read_pickle"):
                found.append(called)
            if called in ("__import__", "importlib.import_module") and any(
                    isinstance(a, ast.Constant) and str(a.value).split(".")[0] in UNPICKLERS for a in node.args):
                found.append(called)
            found += [k.arg for k in node.keywords if k.arg == "allow_pickle"]
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_unpickles(path: Path) -> None:
    if path != OWN_CHILDREN:
        assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("text", [
    "import pickle", "import pickle as p", "from pickle import loads", "import os, _pickle", "def f():\n    import marshal",
    "__import__('pickle')", "importlib.import_module('dill')", "np.load(path)", "torch.load(path)", "f(allow_pickle=False)"])
def test_what_unpickles_is_found(text: str) -> None:
    assert len(faults(text)) == 1
