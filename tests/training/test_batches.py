from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.training.batches import epoch_order, make_batch
from specrag.training.data import TrainingData
from tests.training.kit import LAYERS, data, texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return data(tmp_path_factory.mktemp("features"))


def test_a_batch_is_its_texts_with_padding_behind(corpus: TrainingData) -> None:
    places = [7, 2, 20]
    batch = make_batch(texts(), corpus.store, places, torch.device("cpu"))
    lengths = [len(texts()[place].token_ids) for place in places]
    assert len(set(lengths)) > 1
    assert batch.token_ids.shape == batch.answer.shape == (3, max(lengths))
    assert set(batch.features) == set(LAYERS)
    for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
        text = texts()[place]
        assert batch.token_ids[row, :length].tolist() == list(text.token_ids)
        assert not batch.token_ids[row, length:].any()
        expected = [text.answer_start <= n < length for n in range(max(lengths))]
        assert batch.answer[row].tolist() == expected
        for number, layer in enumerate(LAYERS):
            states = batch.features[layer][row]
            assert states.dtype == torch.float32
            assert torch.equal(states[:length], corpus.store.of(place)[:, number].float())
            assert not states[length:].any()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(2, 900), min_size=1, max_size=700),
    st.integers(1, 4000),
    st.integers(0, 2**31),
    st.data(),
)
def test_an_epoch_uses_each_text_once_in_bounded_batches(
    lengths: list[int], batch_tokens: int, seed: int, drawn: st.DataObject
) -> None:
    first = drawn.draw(st.integers(0, len(lengths) - 1))
    places = range(first, len(lengths))
    order = epoch_order(lengths, places, batch_tokens, seed)
    assert sorted(place for batch in order for place in batch) == list(places)
    for batch in order:
        padded = len(batch) * max(lengths[place] for place in batch)
        assert len(batch) == 1 or padded <= batch_tokens
    assert order == epoch_order(lengths, places, batch_tokens, seed)


def test_another_seed_gives_another_order_and_other_batches() -> None:
    lengths = [20 + n % 60 for n in range(300)]
    first, second = (epoch_order(lengths, range(300), 400, seed) for seed in (0, 1))
    assert first != second
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}
    # Neither the batches nor what they hold is in the order of length.
    longest = [max(lengths[place] for place in batch) for batch in first]
    assert longest != sorted(longest)


def test_texts_of_like_length_share_a_batch() -> None:
    lengths = [(37 * n) % 500 + 2 for n in range(500)]
    order = epoch_order(lengths, range(500), 2000, 0)
    used = sum(lengths)
    padded = sum(len(batch) * max(lengths[place] for place in batch) for batch in order)
    assert padded < 1.1 * used
