from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specrag.errors import InputError
from specrag.retrieval.encodings import EncodingJournal

VECTORS = {bytes([n]): np.full(3, n, dtype=np.float32) for n in range(5)}


def test_vectors_come_back_in_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = EncodingJournal(path, "e", 3)
    first.keep(VECTORS)
    first.close()
    second = EncodingJournal(path, "e", 3)
    found = second.find([bytes([n]) for n in range(2000 % 256)])
    assert {key: vector.tolist() for key, vector in found.items()} == {
        key: vector.tolist() for key, vector in VECTORS.items()
    }
    second.close()


@pytest.mark.parametrize(("encoder", "dimension"), [("other", 3), ("e", 4)])
def test_vectors_of_another_encoder_are_not_taken(
    tmp_path: Path, encoder: str, dimension: int
) -> None:
    path = tmp_path / "journal"
    first = EncodingJournal(path, "e", 3)
    first.keep(VECTORS)
    first.close()
    second = EncodingJournal(path, encoder, dimension)
    assert second.find(list(VECTORS)) == {}
    second.close()


@pytest.mark.parametrize("content", [b"no database" * 1000, b"x"])
def test_a_damaged_journal_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    journal = EncodingJournal(path, "e", 3)
    journal.keep(VECTORS)
    assert len(journal.find(list(VECTORS))) == len(VECTORS)
    journal.close()


def test_damage_in_the_middle_costs_only_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = EncodingJournal(path, "e", 3)
    journal.keep({n.to_bytes(4): np.zeros(3, np.float32) for n in range(5000)})
    journal.close()
    data = bytearray(path.read_bytes())
    data[5000:-1] = b"\xff" * len(data[5000:-1])
    path.write_bytes(data)
    again = EncodingJournal(path, "e", 3)
    assert len(again.find([n.to_bytes(4) for n in range(5000)])) < 5000
    again.close()


def test_a_deleted_journal_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    EncodingJournal(path, "e", 3).close()
    EncodingJournal.delete(path)
    EncodingJournal.delete(path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises((InputError, OSError)):
        EncodingJournal(tmp_path / "missing" / "journal", "e", 3)
