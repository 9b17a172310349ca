"""What every encoder must keep to; the contract is in ``specrag/retrieval/encoder.py``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from specrag.retrieval.encoder import Encoder, HashingEncoder, SentenceTransformerEncoder

TEXTS = ["The gate decides.", "", "草稿模型先猜词。", "x" * 500, "a much longer text " * 300]
Make = Callable[[], Encoder]


@pytest.fixture(
    scope="module",
    params=["hashing", pytest.param("embedded", marks=pytest.mark.embedded)],
)
def make(request: pytest.FixtureRequest) -> Make:
    if request.param == "hashing":
        return HashingEncoder
    path = request.getfixturevalue("embedded_encoder_path")
    return lambda: SentenceTransformerEncoder(path, batch_size=2)


@pytest.fixture(scope="module")
def encoder(make: Make) -> Encoder:
    return make()


@pytest.mark.parametrize("method", ["encode_documents", "encode_queries"])
def test_vectors_have_the_declared_shape_and_length_one(encoder: Encoder, method: str) -> None:
    vectors = getattr(encoder, method)(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("method", ["encode_documents", "encode_queries"])
def test_no_texts_give_no_vectors(encoder: Encoder, method: str) -> None:
    assert getattr(encoder, method)([]).shape == (0, encoder.dimension)


def test_a_vector_depends_on_its_text_alone(encoder: Encoder) -> None:
    forwards = encoder.encode_documents(TEXTS)
    backwards = encoder.encode_documents(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(forwards, backwards, atol=1e-5)
    assert len(np.unique(forwards.round(3), axis=0)) == len(TEXTS)


def test_a_text_finds_itself(encoder: Encoder) -> None:
    similarities = encoder.encode_queries(TEXTS) @ encoder.encode_documents(TEXTS).T
    assert list(similarities.argmax(axis=1)) == list(range(len(TEXTS)))


def test_tokens_are_counted_text_by_text(encoder: Encoder) -> None:
    counts = encoder.count_tokens(TEXTS)
    assert [encoder.count_tokens([text])[0] for text in TEXTS] == counts
    assert encoder.count_tokens([]) == []
    assert counts[1] == 0
    assert counts[4] > encoder.max_tokens > counts[0] > 0


def test_words_add_up(encoder: Encoder) -> None:
    # What the splitter relies on when it adds up the counts of sentences.
    parts = ["The gate decides.", "It reads, say, 3.5 signals!", "草稿模型"]
    assert encoder.count_tokens([" ".join(parts)])[0] == sum(encoder.count_tokens(parts))


def test_equal_encoders_have_equal_fingerprints(encoder: Encoder, make: Make) -> None:
    assert make().fingerprint == encoder.fingerprint
    assert encoder.fingerprint
    assert encoder.name


def test_encoders_differ_in_their_fingerprints(encoder: Encoder) -> None:
    assert encoder.fingerprint != HashingEncoder(dimension=63).fingerprint
