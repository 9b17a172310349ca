from __future__ import annotations

from typing import Any

import pytest

from specrag.decoding.costs import costs_of
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.neural.medusa_level import MedusaLevel
from tests.drafters.kit import TOKENIZER, target
from tests.drafters.reading import medusa_heads


def level(**shape: Any) -> MedusaLevel:
    drafter = MedusaDrafter(medusa_heads(**shape))
    drafter.bind(target(), TOKENIZER)
    (found,) = drafter.levels
    assert isinstance(found, MedusaLevel)
    return found


@pytest.mark.parametrize("shape", [{}, {"own_lm_head": True}, {"num_layers": 2}])
def test_a_level_is_one_head_with_its_logits(shape: dict[str, Any]) -> None:
    evaluate = level(**shape).prepare()
    assert evaluate() == evaluate()
    assert isinstance(evaluate(), float)


def test_levels_of_other_heads_cost_otherwise() -> None:
    shapes: list[dict[str, Any]] = [{}, {"num_layers": 2}, {"own_lm_head": True}]
    assert len({level(**shape).identity for shape in shapes}) == len(shapes)
    assert level(seed=1).identity == level(seed=2).identity


@pytest.mark.usefixtures("isolated_home")
def test_drafting_with_heads_is_not_free() -> None:
    costs = costs_of(target(), TOKENIZER, MedusaDrafter(medusa_heads()))
    assert costs is not None
    assert costs.draft_level > 0
