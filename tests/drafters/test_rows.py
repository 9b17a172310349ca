from __future__ import annotations

from collections.abc import Sequence

import pytest

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext
from specrag.decoding.tree import DraftTree
from specrag.drafters.rows import RowwiseSession


class Echo:
    """Proposes the prompt's first token, the last noted one and those ahead."""

    def __init__(self, context: DraftContext) -> None:
        self.tokens = [context.prompt_ids[0]]

    def append(self, token: int) -> None:
        self.tokens[1:] = [token]

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        return DraftTree.chain([*self.tokens, *ahead][: budget.num_speculative_tokens])


def session(*prompts: int) -> RowwiseSession:
    return RowwiseSession(Echo, [DraftContext((prompt,)) for prompt in prompts])


def chains(*token_ids: list[int]) -> list[DraftTree]:
    return [DraftTree.chain(tokens) for tokens in token_ids]


def test_each_named_row_gets_its_own_budget_and_tokens_ahead() -> None:
    batch = session(1, 2, 3)
    budget = [DraftBudget(2, 9), DraftBudget(3, 9)]
    batch.observe(2, [7, 8])

    assert batch.propose([2, 0], budget) == chains([3, 8], [1])
    assert batch.propose_after([2, 0], budget, [[5], [6]]) == chains([3, 8], [1, 6])


def test_rows_that_join_get_the_next_index() -> None:
    batch = session(1)

    assert [batch.join(DraftContext((prompt,))) for prompt in (4, 5)] == [1, 2]
    assert batch.propose([2, 1], [DraftBudget(1, 1)] * 2) == chains([5], [4])


@pytest.mark.parametrize("num_budgets", [0, 1, 3])
def test_a_budget_for_each_row_is_a_must(num_budgets: int) -> None:
    batch = session(1, 2)
    budget = [DraftBudget(1, 1)] * num_budgets

    with pytest.raises(ValueError, match="zip"):
        batch.propose_after([0, 1], budget, [(), ()])
