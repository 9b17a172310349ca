"""What the loop that drafts asks of a head of any generation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from specrag.drafters.heads.config import Eagle3Config, EagleConfig
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive
from tests.drafters.heads.runs import LAYER, TARGET, VOCAB, WIDTH, seeded

CONFIGS: dict[str, EagleConfig | Eagle3Config] = {
    "eagle": EagleConfig(LAYER, VOCAB, num_layers=2),
    "eagle3": Eagle3Config(LAYER, VOCAB, VOCAB, TARGET, (0, 1), num_layers=2),
}


class Plain(FeatureHead):
    """The least that a head has to say."""

    feature_layers = (0,)

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(LAYER, sizes)

    def fuse(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        return features[0]

    def enter(
        self, states: torch.Tensor, embedded: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return states + embedded, states

    def leave(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return outputs, outputs


def passed(
    head: FeatureHead, states: torch.Tensor, cache: KVCache, first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    count = states.shape[1]
    allowed = torch.ones(1, count, first + count, dtype=torch.bool).tril(first)
    cache.begin_pass(count)
    found: tuple[torch.Tensor, torch.Tensor] = head(
        states,
        states.flip(2),
        torch.arange(first, first + count).unsqueeze(0),
        additive(allowed, states.dtype),
        cache,
    )
    cache.commit([range(count)])
    return found


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_a_text_at_once_and_in_steps_is_the_same(name: str) -> None:
    head = seeded(CONFIGS[name])
    states = torch.randn(1, 5, WIDTH, generator=torch.Generator().manual_seed(2)).double()
    whole = passed(head, states, KVCache(head.num_layers, 1), 0)
    cache = KVCache(head.num_layers, 1)
    for first, last in ((0, 2), (2, 3), (3, 5)):
        part = passed(head, states[:, first:last], cache, first)
        for found, wanted in zip(part, whole, strict=True):
            assert torch.allclose(found, wanted[:, first:last])


def test_a_head_of_one_layer_needs_no_way_into_later_ones() -> None:
    head = Plain([WIDTH])
    assert (head.num_layers, len(head.draft_layers)) == (1, 1)
    passed(head, torch.zeros(1, 2, WIDTH), KVCache(1, 1), 0)
    with pytest.raises(NotImplementedError, match="Plain has one layer"):
        passed(Plain([WIDTH, WIDTH]), torch.zeros(1, 2, WIDTH), KVCache(2, 1), 0)
