"""A head over a whole text equals the same head drafting at each position in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.teacher import teacher_forced
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive

WIDTH, COUNT, DEPTH = 16, 7, 3
LAYER = DraftLayerConfig(WIDTH, 24, num_heads=4, num_kv_heads=2, head_dim=4, qk_norm=True)


def eagle() -> FeatureHead:
    return EagleHead(EagleConfig(LAYER, 30, num_layers=2))


def eagle3() -> FeatureHead:
    config = Eagle3Config(LAYER, 30, 30, 20, (0, 1, 2), num_layers=2, norm_output=True)
    return Eagle3Head(config)


def drafted(
    head: FeatureHead, features: list[torch.Tensor], embedded: torch.Tensor, position: int
) -> list[torch.Tensor]:
    """What the head says after a position, as a session drafts: committed states, then its own."""
    cache = KVCache(head.num_layers, 1)
    states = head.fuse([part[:, : position + 1] for part in features])
    said = []
    for _ in range(DEPTH):
        count = states.shape[1]
        start = cache.lengths[0]
        cache.begin_pass(count)
        seen = torch.ones(count, start + count, dtype=torch.bool).tril(start)
        read, states = head(
            states,
            embedded[:, start : start + count],
            start + torch.arange(count).unsqueeze(0),
            additive(seen.unsqueeze(0), states.dtype),
            cache,
        )
        cache.commit([range(count)])
        said.append(read[:, -1])
        states = states[:, -1:]
    return said


@pytest.mark.parametrize("make", [eagle, eagle3])
@torch.no_grad()
def test_every_position_as_if_it_drafted_alone(make: Callable[[], FeatureHead]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        head = make().double()
        width = WIDTH if isinstance(head, EagleHead) else 20
        features = [torch.randn(2, COUNT, width).double() for _ in head.feature_layers]
        embedded = torch.randn(2, COUNT + DEPTH - 1, WIDTH).double()
    found = teacher_forced(head, features, embedded, DEPTH)
    assert [tuple(level.shape) for level in found] == [(2, COUNT, WIDTH)] * DEPTH
    for row in range(2):
        own = [part[row : row + 1] for part in features]
        for position in range(COUNT):
            wanted = drafted(head, own, embedded[row : row + 1], position)
            for level in range(DEPTH):
                got = found[level][row : row + 1, position]
                assert torch.allclose(got, wanted[level], atol=1e-9), (row, position, level)


@pytest.mark.parametrize("depth", [0, 2])
def test_tokens_of_another_number_are_a_mistake(depth: int) -> None:
    features = [torch.zeros(1, COUNT, WIDTH)]
    with pytest.raises(AssertionError):
        teacher_forced(eagle(), features, torch.zeros(1, COUNT, WIDTH), depth)
