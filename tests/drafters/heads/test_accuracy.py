from __future__ import annotations

import pytest
import torch

from specrag.drafters.heads.accuracy import ReadText, measured_accuracies
from specrag.drafters.heads.projection import Projection
from tests.drafters.kit import VOCAB, target
from tests.drafters.reading import HIDDEN, medusa_heads, said_texts

IDS = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))[:50]


def counted(texts: list[ReadText], num_ranks: int) -> list[list[float]]:
    """The same, one position at a time."""
    heads, projection = medusa_heads(), Projection.shared(target(), IDS)
    rows = []
    for head in range(heads.num_heads):
        right, tested = [0] * num_ranks, 0
        for text in texts:
            for row in range(len(text.token_ids)):
                for place in range(text.token_ids.shape[1] - 2 - head):
                    wanted = place + 2 + head
                    if not (text.answer[row, place + 2] and text.answer[row, wanted]):
                        continue
                    tested += 1
                    logits = heads.logits(text.states[row, place], projection)[head]
                    order = IDS[logits.argsort(descending=True, stable=True)].tolist()
                    token = int(text.token_ids[row, wanted])
                    if token in order[:num_ranks]:
                        right[order.index(token)] += 1
        rows.append([count / tested for count in right])
    return rows


def test_each_rank_is_counted_where_the_target_spoke() -> None:
    texts = said_texts(count=12)[:12]
    found = measured_accuracies(medusa_heads(), Projection.shared(target(), IDS), texts, 4)

    assert len(found) == 3
    for row, expected in zip(found, counted(texts, 4), strict=True):
        assert row == pytest.approx(expected)
    assert sum(found[0]) > 0


def test_texts_side_by_side_count_like_texts_alone() -> None:
    texts = [text for text in said_texts() if text.token_ids.shape[1] > 40]
    width = max(text.token_ids.shape[1] for text in texts)

    def padded(part: torch.Tensor) -> torch.Tensor:
        wide = part.new_zeros(1, width, *part.shape[2:])
        wide[:, : part.shape[1]] = part
        return wide

    together = ReadText(*(torch.cat([padded(t[k]) for t in texts]) for k in range(3)))
    heads, projection = medusa_heads(), Projection.shared(target(), IDS)

    assert together.token_ids.numel() > 1000
    found = measured_accuracies(heads, projection, [together])
    assert found == measured_accuracies(heads, projection, texts)
    assert len(found[0]) == 10


def test_of_equal_logits_the_first_stands_first() -> None:
    class Same(Projection):
        def logits(self, states: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*states.shape[:-1], len(self.token_ids))

    text = ReadText(
        torch.zeros(1, 3, HIDDEN).double(), torch.tensor([[1, 1, 7]]), torch.ones(1, 3).bool()
    )
    same = Same(torch.zeros(VOCAB, HIDDEN), VOCAB, [9, 7, 2])

    assert measured_accuracies(medusa_heads(), same, [text], 3)[0] == (0.0, 1.0, 0.0)


def test_nothing_to_measure_gives_nothing() -> None:
    projection = Projection.shared(target())

    assert measured_accuracies(medusa_heads(), projection, [], 2) == ((0.0, 0.0),) * 3
