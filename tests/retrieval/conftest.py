"""A small corpus, its recipe, and an encoder that needs no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.recipe import IndexRecipe

CORPUS = {
    "gate.md": "# Gate\n\nThe gate decides whether documents are needed.\n\n## Signals\n\n"
    "It reads the entropy of the draft. It reads the acceptance of the draft.\n",
    "tree.md": "# Tree\r\n\r\nA draft tree merges the proposals of several drafters.\r\n",
    "notes/chinese.txt": "草稿模型先猜词。目标模型再验证。",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of three documents."""
    root = tmp_path / "corpus"
    for name, text in CORPUS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    return root


@pytest.fixture
def recipe(corpus: Path) -> IndexRecipe:
    """A recipe over the small corpus."""
    return IndexRecipe("small", corpus, "hashing", chunk_size=20, chunk_overlap=5)


@pytest.fixture
def encoder() -> HashingEncoder:
    """An encoder that needs no model."""
    return HashingEncoder()


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    """Where an index may be built; does not exist yet."""
    return tmp_path / "indexes" / "small"
