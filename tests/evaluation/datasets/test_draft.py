"""Documents of a draft are told apart even where their short digests agree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from specrag.evaluation.datasets.draft import Draft


class Digest:
    """A digest whose first half is the same for every text."""

    def __init__(self, data: bytes) -> None:
        self._whole = "0" * 32 + _sha256(data).hexdigest()[:32]

    def hexdigest(self) -> str:
        return self._whole


_sha256: Callable[[bytes], hashlib._Hash] = hashlib.sha256


def test_texts_whose_short_digests_agree_keep_ids_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hashlib, "sha256", Digest)
    draft = Draft("set")
    names = [draft.document("", text) for text in ("one", "two", "one", "two")]
    assert names[:2] == names[2:]
    assert [document.text for document in draft.documents] == ["one", "two"]
    assert len({document.id for document in draft.documents}) == 2


def test_a_title_that_is_missing_is_not_called_none() -> None:
    draft = Draft("set")
    assert str(draft.document("", "text")).startswith("document-")
    assert draft.documents[0].title is None
