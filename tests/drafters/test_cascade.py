from __future__ import annotations

import pytest

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import Drafter
from specrag.drafters.cascade import cascade
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.drafters.neural.session import DraftOptions
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError
from specrag.models.huggingface import HuggingFaceTarget
from tests.drafters.kit import (
    MODES,
    TOKENIZER,
    Watched,
    context,
    decode,
    merging_model,
    merging_tokenizer,
    model,
    near_model,
    params,
    prompt,
    target,
)

ANY = DraftOptions(min_confidence=0.0)


def draft(made: HuggingFaceTarget) -> DraftModelDrafter:
    return DraftModelDrafter(made, TOKENIZER, options=ANY)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", ["suffix", "model", "other tokenizer"])
def test_three_levels_say_what_plain_decoding_says(first: str, mode: str) -> None:
    cheapest: dict[str, Drafter] = {
        "suffix": SuffixDrafter(),
        "model": draft(model(near=0.2)),
        "other tokenizer": DraftModelDrafter(merging_model(), merging_tokenizer(), options=ANY),
    }
    made = cascade([cheapest[first], draft(model(near=0.15)), draft(near_model())])
    wishes = [params(mode, number, ignore_eos=number % 2 == 0) for number in range(4)]
    found = decode(made, wishes)

    assert [a.token_ids for a in found] == [a.token_ids for a in decode("none", wishes)]
    assert sum(answer.stats.num_accepted_tokens for answer in found) > 2


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_a_cascade_drafts_what_its_last_level_alone_would_in_fewer_passes(mode: str) -> None:
    """The same weights below: every proposal is accepted, whatever the noise."""
    alone, helped = Watched(near_model()), Watched(near_model())
    wishes = [params(mode, number, max_tokens=20, ignore_eos=True) for number in range(3)]
    plain = decode(draft(alone), wishes, depth=6)
    found = decode(cascade([draft(near_model()), draft(helped)]), wishes, depth=6)

    assert [a.stats.num_draft_tokens for a in found] == [a.stats.num_draft_tokens for a in plain]
    assert [a.stats.num_passes for a in found] == [a.stats.num_passes for a in plain]
    assert len(helped.passes) < 0.4 * len(alone.passes)


def test_levels_are_not_changed_and_the_last_one_drafts() -> None:
    small, large = draft(near_model()), draft(target())
    made = cascade([SuffixDrafter(), small, large])

    assert small.drafter is None
    assert large.drafter is None
    assert isinstance(made, DraftModelDrafter)
    assert made.name == "suffix>draft:near-tiny-1>draft:tiny-1"
    assert isinstance(made.drafter, DraftModelDrafter)
    assert isinstance(made.drafter.drafter, SuffixDrafter)
    assert cascade([small]) is small


def test_only_models_can_check_a_proposal() -> None:
    with pytest.raises(ConfigError, match="'suffix' cannot check what 'draft:.*' drafts"):
        cascade([draft(near_model()), SuffixDrafter()])
    with pytest.raises(ConfigError, match="at least one drafter"):
        cascade([])
    with pytest.raises(ConfigError, match="has a drafter of its own already, 'suffix'"):
        cascade([SuffixDrafter(), cascade([SuffixDrafter(), draft(near_model())])])


def test_what_the_model_verified_itself_is_not_computed_again() -> None:
    watched = Watched(near_model())
    made = cascade([draft(near_model()), draft(watched)])
    made.bind(target(), TOKENIZER)
    session = made.open([context(prompt(3))])
    (tree,) = session.propose([0], [DraftBudget(4, 4, 1)])
    session.observe(0, [*tree.token_ids, 7])
    watched.passes = []
    session.propose([0], [DraftBudget(4, 4, 1)])

    # The last draft token and the bonus token, and the six nodes proposed to the model.
    assert watched.passes[0] == (1, 2 + 6)
