"""TrainingBatch: texts side by side, and the order in which a corpus is gone through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from specrag.training.features import FeatureStore
from specrag.training.texts import TrainingText

_POOL = 512  # texts that are drawn at random and then sorted by length


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Texts of like length with the target's states, padded at the end.

    Attributes:
        token_ids: ``[batch, tokens]`` int64; padding is 0.
        answer: ``[batch, tokens]`` bool: which tokens the target itself said.
        features: Layer to states ``[batch, tokens, hidden]`` float32.
    """

    token_ids: torch.Tensor
    answer: torch.Tensor
    features: Mapping[int, torch.Tensor]


def make_batch(
    texts: Sequence[TrainingText], store: FeatureStore, places: Sequence[int], device: torch.device
) -> TrainingBatch:
    """Returns some texts as one batch.

    Args:
        texts: The corpus.
        store: Its features.
        places: Which of them.
        device: Where to compute.
    """
    lengths = [len(texts[place].token_ids) for place in places]
    shape = (len(places), max(lengths))
    token_ids = torch.zeros(shape, dtype=torch.long)
    answer = torch.zeros(shape, dtype=torch.bool)
    states: torch.Tensor | None = None
    for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
        token_ids[row, :length] = torch.tensor(tuple(texts[place].token_ids), dtype=torch.long)
        answer[row, texts[place].answer_start : length] = True
        found = store.of(place)
        if states is None:
            states = found.new_zeros(*shape, *found.shape[1:])
        states[row, :length] = found
    assert states is not None, "a batch has at least one text"
    features = {
        layer: states[:, :, number].to(device, torch.float32)
        for number, layer in enumerate(store.layers)
    }
    return TrainingBatch(token_ids.to(device), answer.to(device), features)


def epoch_order(
    lengths: Sequence[int], places: Sequence[int], batch_tokens: int, seed: int
) -> list[list[int]]:
    """Returns the batches of an epoch: in random order, with texts of like length together.

    Args:
        lengths: Tokens of every text of the corpus.
        places: The texts to use.
        batch_tokens: Most tokens of a batch, padding included; a longer text stands alone.
        seed: The same seed gives the same order.
    """
    draw = torch.Generator().manual_seed(seed)
    mixed = [places[int(i)] for i in torch.randperm(len(places), generator=draw)]
    batches: list[list[int]] = []
    for first in range(0, len(mixed), _POOL):
        pool = sorted(mixed[first : first + _POOL], key=lambda place: lengths[place])
        batches += _grouped(lengths, pool, batch_tokens)
    return [batches[int(i)] for i in torch.randperm(len(batches), generator=draw)]


def _grouped(
    lengths: Sequence[int], places: Sequence[int], batch_tokens: int
) -> Iterator[list[int]]:
    batch: list[int] = []
    for place in places:
        if batch and (len(batch) + 1) * lengths[place] > batch_tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
