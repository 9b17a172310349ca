from __future__ import annotations

from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.home import definition_roots, find_definition, home, known_definitions


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one recipe and one pipeline of its own."""
    (tmp_path / "indexes" / "mine").mkdir(parents=True)
    (tmp_path / "indexes" / "mine" / "recipe.toml").touch()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "own.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_home_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECRAG_HOME", "~/elsewhere")
    assert home() == Path.home() / "elsewhere"


@pytest.mark.parametrize("value", [None, ""])
def test_home_has_a_default(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECRAG_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("SPECRAG_HOME", value)
    assert home() == Path.home() / ".cache" / "specrag"


def test_home_is_not_created(isolated_home: Path) -> None:
    assert home() == isolated_home
    assert not isolated_home.exists()


def test_the_working_directory_comes_first(project: Path) -> None:
    assert definition_roots("indexes")[0] == project / "indexes"
    found = find_definition("indexes", "mine", "mine/recipe.toml")
    assert found == project / "indexes" / "mine" / "recipe.toml"


def test_packaged_definitions_are_found_from_any_directory(project: Path) -> None:
    assert "handbook" in known_definitions("indexes")
    found = find_definition("indexes", "handbook", "handbook/recipe.toml")
    assert found.is_file()
    assert project not in found.parents


@pytest.mark.parametrize(("kind", "name"), [("indexes", "mine"), ("pipelines", "own")])
def test_own_definitions_are_known(kind: str, name: str, project: Path) -> None:
    assert project.is_dir()
    names = known_definitions(kind)
    assert name in names
    assert names == sorted(set(names))


@pytest.mark.usefixtures("project")
def test_an_unknown_definition_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'mnie' in indexes/; did you mean 'mine'\?"):
        find_definition("indexes", "mnie", "mnie/recipe.toml")
