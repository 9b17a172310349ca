from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import specrag

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def _files(folder: str, pattern: str = "*") -> set[str]:
    found = (path for path in (ROOT / folder).rglob(pattern) if path.is_file())
    names = {path.relative_to(ROOT).as_posix() for path in found}
    return {name for name in names if "__pycache__" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--disable-pip-version-check", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode("utf-8"))


def test_the_code_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    expected = _files("specrag", "*.py") | {"specrag/py.typed"}
    assert expected <= set(wheel.namelist())


@pytest.mark.parametrize("kind", ["indexes", "pipelines"])
def test_the_definitions_are_in_the_wheel(kind: str, wheel: zipfile.ZipFile) -> None:
    expected = {f"specrag/_definitions/{name}" for name in _files(kind)}
    assert expected
    found = {name for name in wheel.namelist() if name.startswith(f"specrag/_definitions/{kind}/")}
    assert found == expected


def test_nothing_else_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"specrag", f"specrag-{specrag.__version__}.dist-info"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_the_licence_travels_with_the_wheel(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    (name,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert "Apache License" in wheel.read(name).decode("utf-8")


def test_the_command_is_declared(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "specrag = specrag.cli.main:console" in wheel.read(name).decode("utf-8")


def test_the_version_is_written_alike_in_both_places(metadata: Message) -> None:
    assert PROJECT["version"] == specrag.__version__ == metadata["Version"]


def _extras_named_in(text: str) -> set[str]:
    groups = re.findall(r"(?:specrag|\.)\[([\w, -]+)\]", text)
    return {extra.strip() for group in groups for extra in group.split(",")}


def _extras_required_by(source: str) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    required = [call for call in calls if ast.unparse(call.func).endswith("require_extra")]
    return {ast.literal_eval(call.args[1]) for call in required}


@pytest.mark.parametrize("name", ["README.md", "Makefile"])
def test_the_extras_named_to_users_exist(name: str) -> None:
    named = _extras_named_in((ROOT / name).read_text("utf-8"))
    assert named
    assert named <= set(EXTRAS)


@pytest.mark.parametrize("name", sorted(_files("specrag", "*.py")))
def test_the_extras_required_by_the_code_exist(name: str) -> None:
    assert _extras_required_by((ROOT / name).read_text("utf-8")) <= set(EXTRAS)


def test_extras_are_recognised() -> None:
    assert _extras_named_in("pip install 'specrag[a, b]' or -e '.[c]'") == {"a", "b", "c"}
    assert _extras_required_by("extras.require_extra('m', 'a'); require_extra('n', 'b')") == {
        "a",
        "b",
    }


def test_all_holds_every_extra_that_users_want() -> None:
    held = _extras_named_in(" ".join(EXTRAS["all"]))
    # `hub` is for evaluation sets by name and brings far more than the rest together.
    assert held == set(EXTRAS) - {"all", "dev", "hub"}


def test_constraints_pin_what_is_required() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    names = {pin.name.lower().replace("_", "-") for pin in pins}
    wanted = [Requirement(text) for texts in EXTRAS.values() for text in texts]
    wanted += [Requirement(text) for text in PROJECT["dependencies"]]
    assert {need.name.lower() for need in wanted} - names <= {"specrag"}
    # No local build such as +cpu, and nothing but one exact version.
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
