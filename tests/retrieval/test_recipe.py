from __future__ import annotations

from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.retrieval.recipe import IndexRecipe, load_recipe
from specrag.retrieval.sources.catalog import DEFAULT_PATTERNS

COMPLETE = """
name = "handbook"
description = "All about it."
corpus = "corpus"
patterns = ["*.md", "notes/**"]
encoder = "all-MiniLM-L6-v2"
chunk_size = 100
chunk_overlap = 10
"""


def load(folder: Path, text: str) -> IndexRecipe:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


def test_a_complete_recipe(tmp_path: Path) -> None:
    assert load(tmp_path, COMPLETE) == IndexRecipe(
        name="handbook",
        description="All about it.",
        corpus=tmp_path / "corpus",
        patterns=("*.md", "notes/**"),
        encoder="all-MiniLM-L6-v2",
        chunk_size=100,
        chunk_overlap=10,
    )


def test_what_has_a_default_may_be_left_out(tmp_path: Path) -> None:
    recipe = load(tmp_path, 'name = "a"\ncorpus = "/data"\nencoder = "e"')
    assert recipe == IndexRecipe("a", Path("/data"), "e")
    assert recipe.patterns == DEFAULT_PATTERNS


@pytest.mark.parametrize("key", ["name", "corpus", "encoder"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    lines = [line for line in COMPLETE.splitlines() if not line.startswith(f"{key} =")]
    with pytest.raises(ConfigError, match=f"recipe.toml: the key '{key}' is missing"):
        load(tmp_path, "\n".join(lines))


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'chunksize'; did you mean 'chunk_size'\?"):
        load(tmp_path, COMPLETE.replace("chunk_size", "chunksize"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"handbook"', "3", "name must be a string, got 3"),
        ("= 100", '= "100"', "chunk_size must be an integer, got '100'"),
        ("= 100", "= true", "chunk_size must be an integer, got True"),
        ("= 100", "= 100.0", "chunk_size must be an integer, got 100.0"),
        ('["*.md", "notes/**"]', '"*.md"', "patterns must be a list of strings, got"),
        ('["*.md", "notes/**"]', "[1]", "patterns must be a list of strings, got"),
        ('["*.md", "notes/**"]', "[]", "patterns must name at least one glob"),
        ("= 100", "= 0", "chunk_size must be at least 1 token, got 0"),
        ("= 10\n", "= 100\n", "chunk_overlap must be from 0 to 99 .*got 100"),
        ('"handbook"', '"../evil"', "an index name holds letters.*got '../evil'"),
        ('"handbook"', '""', "an index name holds letters.*got ''"),
        ("= 100", "=", "is not valid TOML"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in COMPLETE
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, COMPLETE.replace(old, new))
    assert "recipe.toml" in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the recipe .*No such file"):
        load_recipe(tmp_path / "recipe.toml")
