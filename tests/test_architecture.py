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
    {"errors", "threads", "words"},
    {"files", "space"},
    {"settings", "problem", "history", "front", "noise", "crypto", "contract"},
    {"mechanisms", "privacy"},
    {"federation", "optimizers", "theory"},
    {"trials"},
    {"store"},
    {"study"},
    {"evaluate"},
    {"executors"},
    {"audit", "baselines", "keep"},
    {"loop", "report", "testing"},
    {"deploy", "design", "reproduce", "rescue"},
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
    classes = [node for path in modules() for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes if "Protocol" not in {ast.unparse(base) for base in node.bases}}
    for path in modules():
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                assert not {ast.unparse(base) for base in node.bases} & own, f"{path}: {node.name}"


WRITES = {"write_text", "write_bytes", "savefig", "mkstemp", "NamedTemporaryFile", "TemporaryFile", "touch",
          "savetxt", "tofile", "save_file", "symlink_to", "copyfile", "copy2", "truncate"}


def opens_for_writing(node):
    """Say whether a call writes a file: by its name, or by the mode or flags it opens one with."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in WRITES or ast.unparse(node.func) in {"np.save", "np.savez", "torch.save", "json.dump", "os.replace", "os.rename"}:
        return True
    if name not in ("open", "fdopen"):
        return False
    given = [*node.args, *(k.value for k in node.keywords)]
    modes = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str) and len(a.value) <= 3]
    flags = [f for a in given for f in ("O_WRONLY", "O_RDWR", "O_CREAT") if f in ast.unparse(a)]
    return any(set(m) & set("wax+") for m in modes) or bool(flags)


# Where bytes go to that are no output: a pipe between processes, what a closed stdout is pointed at, and a
# download, which is checked by its md5 sum as it comes and is too large to be held whole. A new database is written
# whole too, but under a name of its own that the next run takes again: a killed run leaves nothing behind. A rescue
# mends a copy in a temporary folder. A site's arrays are packed in memory before they are written.
NO_OUTPUT = {"deploy/machine.py", "crypto/parallel.py", "cli/__init__.py", "federation/download.py", "store/access.py", "store/salvage.py"}


def test_only_one_module_opens_files_for_writing():
    found = {str(path.relative_to(ROOT)) for path in modules() for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Call) and opens_for_writing(node)}
    assert found == {"files.py"} | NO_OUTPUT


@pytest.mark.parametrize(("code", "writes"), [
    ("open('a', 'w')", True), ("p.open('rb')", False), ("p.open(mode='r+b')", True), ("os.open(p, os.O_WRONLY)", True),
    ("p.write_text('a')", True), ("open(p)", False), ("os.fdopen(f, 'wb')", True), ("gzip.open(p)", False)])
def test_what_counts_as_opening_for_writing(code, writes):
    assert opens_for_writing(ast.parse(code).body[0].value) is writes
