from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specrag.cli.main import build_app


def run(*args: str) -> object:
    words = ["index", "benchmark", *args]
    return CliRunner().invoke(build_app(words), words)


def test_vectors_are_measured_and_drawn(tmp_path: Path) -> None:
    result = run(
        *("--sizes", "300", "--factories", "flat", "--dimension", "8", "--num-queries", "3"),
        *("--out", str(tmp_path / "out"), "--json"),
    )
    (row,) = json.loads(result.stdout)["results"]  # type: ignore[attr-defined]
    assert (row["name"], row["num_vectors"], row["read"]["recall"]) == ("flat", 300, 1.0)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"vector_search.json", "vector_search.png", "vector_search.svg"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sizes", "many"), "--sizes needs whole numbers with commas, got 'many'"),
        (("--sizes", "3"), "sizes must be at least k=10"),
        (("--factories", "flta"), "flta"),
    ],
)
def test_what_cannot_be_measured_is_told(words: tuple[str, ...], message: str) -> None:
    assert message in str(run(*words).exception)  # type: ignore[attr-defined]
