"""What is shipped: pins, hashes, bounds, and a source archive that can be tested."""

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib.metadata import Distribution
from importlib.metadata import distributions as found_on
from pathlib import Path

import pytest

import fedpareto

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REACHED_INTO = ("botorch", "gpytorch", "linear_operator")
KEPT = {".py", ".toml", ".md", ".csv", ".txt", ".json", ".html", ".css", ".js", ".png", ".svg", ".npz", ".ipynb"}
OF_CUDA = ("nvidia-", "cuda-", "triton")  # what one of torch's builds brings along, and another does not
NOT_OURS = {".venv", ".venv-bench", ".venv-flower", ".git", "build", "dist", "__pycache__", "carry", "fedpareto.egg-info"}


def distributions() -> list[Distribution]:
    """List what is installed; a package that was imported may have put others of its own on Python's path."""
    return list(found_on(path=[sysconfig.get_paths()["purelib"]]))


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    lines = [line.split() for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    pairs = [line[0].split("==") for line in lines if line]
    assert all(len(pair) == 2 for pair in pairs), f"{file} has a line that is no exact pin"
    return {plain(name): version for name, version in pairs}


def test_every_installed_package_is_pinned_to_the_version_it_has() -> None:
    pinned = pins("constraints.txt")
    needed = closure() - {"fedpareto", "pip"}
    for found in distributions():
        name = plain(found.metadata["Name"])
        if name not in needed or name.startswith(OF_CUDA):
            continue
        assert pinned.get(name) == found.version.split("+")[0], name


def closure() -> set[str]:
    """Return what the dev extra installs, by walking what each package says it requires."""
    known = {plain(found.metadata["Name"]): found for found in distributions()}
    left, seen = ["fedpareto"], set()
    while left:
        name = left.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for line in known[name].requires or []:
            own_extra = name == "fedpareto" and "bench" not in line.partition(";")[2]
            if own_extra or "extra ==" not in line:
                left.append(plain(re.match(r"[A-Za-z0-9._-]+", line)[0]))  # type: ignore[index]
    return seen


def test_hashes_are_of_the_pinned_versions() -> None:
    pinned, hashed = pins("constraints.txt"), pins("hashes.txt")
    assert len(hashed) > 40
    assert hashed.items() <= pinned.items()
    lines = [line for line in (ROOT / "hashes.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_torch_has_no_hash_since_its_builds_differ() -> None:
    assert "torch" in pins("constraints.txt")
    assert "torch" not in pins("hashes.txt")


@pytest.mark.parametrize("name", REACHED_INTO)
def test_what_is_reached_into_has_a_lower_and_an_upper_bound(name: str) -> None:
    line = next(line for line in PROJECT["dependencies"] if line.startswith(name))
    lower, upper = re.fullmatch(rf"{name}>=([\d.]+),<([\d.]+)", line).groups()  # type: ignore[union-attr]
    pinned = tuple(map(int, pins("constraints.txt")[plain(name)].split(".")))
    assert tuple(map(int, lower.split("."))) <= pinned < tuple(map(int, upper.split(".")))


def test_the_source_archive_holds_everything_its_tests_need(tmp_path: Path) -> None:
    code = f"from setuptools import build_meta as b; print(b.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=copy_of(ROOT, tmp_path / "tree"), check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "Makefile", "constraints.txt", "hashes.txt", ".ci/run"} <= held
    assert sources(ROOT) <= held


def copy_of(root: Path, target: Path) -> Path:
    """Copy the sources, so that building leaves nothing in the repository."""
    for name in sources(root) | {"LICENSE", "Makefile", "MANIFEST.in", ".ci/run"}:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((root / name).read_bytes())
    return target


def sources(root: Path) -> set[str]:
    """List the files that belong to the project; what examples write is not among them."""
    found = {
        path.relative_to(root) for path in root.rglob("*")
        if path.suffix in KEPT and path.is_file() and not NOT_OURS & set(path.relative_to(root).parts)
    }
    written = {path for path in found if path.parts[0] == "examples" and path.suffix not in {".py", ".toml", ".ipynb"} and "starter" not in path.parts}
    written -= {Path("examples/hospitals_public.csv")}
    hidden = {path for path in found if any(part.startswith(".") for part in path.parts)}
    return {str(path) for path in found - written - hidden}


def test_the_licence_is_the_one_that_is_named() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]


def test_the_conda_recipe_says_what_the_project_says() -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    namesake = {"torch": "pytorch"}
    needed = [re.match(r"([\w-]+)(.*)", line).groups() for line in PROJECT["dependencies"]]  # type: ignore[union-attr]
    said = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    assert said == {namesake.get(name, name): bounds for name, bounds in needed} | {"python": PROJECT["requires-python"]}
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {to}" for name, to in PROJECT["scripts"].items()]
    assert recipe["context"]["version"] == fedpareto.__version__
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["requirements"]["host"][-1].split(" ", 1) == ["setuptools", tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"][0][10:]]


def test_the_conda_recipe_leaves_nothing_empty() -> None:
    """rattler-build refuses a key without a value."""
    yaml = pytest.importorskip("yaml")

    def empty(part: object) -> bool:
        if isinstance(part, dict):
            return any(map(empty, part.values()))
        return part is None or (isinstance(part, list) and any(map(empty, part)))

    assert not empty(yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text()))


def test_the_conda_recipe_is_rendered_by_what_builds_it() -> None:
    """Where py-rattler-build is installed; it is no dependency of the tests."""
    rattler_build = pytest.importorskip("rattler_build")
    (rendered,) = rattler_build.Stage0Recipe.from_file(ROOT / "conda" / "recipe.yaml").render(rattler_build.VariantConfig())
    made = rendered.recipe().to_dict() if callable(rendered.recipe) else rendered.recipe.to_dict()
    assert (made["package"]["version"], made["build"]["noarch"]) == (fedpareto.__version__, "python")
