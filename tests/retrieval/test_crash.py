"""A kill at any moment leaves the old index or the new one; readers never see half of a change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specrag.retrieval.build import open_writer
from specrag.retrieval.document import Document
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.retriever import open_index

ROOT = Path(__file__).resolve().parents[2]
ENCODER = HashingEncoder(16)
NUM_VERSIONS = 30


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_leaves_a_whole_index(tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.retrieval.killing", str(tmp_path), "55", str(seed)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("killed 55 of ")


def test_readers_see_one_version_while_a_writer_publishes(tmp_path: Path) -> None:
    recipe = IndexRecipe("small", Path("x"), "hashing", chunk_size=20, chunk_overlap=5)

    def write(version: int) -> None:
        with open_writer(recipe, ENCODER, tmp_path) as writer:
            for number in range(4):
                writer.put(Document(f"{number}", f"Version {version} of it.", "s"))
            writer.commit()

    write(0)
    finished = threading.Event()
    seen: list[set[str]] = []
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not finished.is_set():
                retriever = open_index(tmp_path, ENCODER)
                for _ in range(3):
                    found = retriever.retrieve("Version of it", 10)
                    assert len(found) == 4
                    seen.append({one.passage.text for one in found})
                retriever.close()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(1, NUM_VERSIONS):
        write(version)
    finished.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert all(len(texts) == 1 for texts in seen)
    assert len({next(iter(texts)) for texts in seen}) > 1
