from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from scipy import stats

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext
from specrag.decoding.sampling import TokenSampler
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.trees.best_tree import best_tree
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.models.tiny import tiny_target
from tests.drafters.kit import MODES, TOKENIZER, VOCAB, context, decode, params, target
from tests.drafters.reading import features_of, medusa_heads, opened

TEXT, SAID = (9, 30, 5, 41), (7, 52)
WIDE = DraftBudget(12, 3, 3)
HALF = tuple(range(0, VOCAB, 2))
SHARES = ((0.5, 0.3, 0.1), (0.4, 0.1, 0.05), (0.3, 0.1, 0.1))


@cache
def log_probs(count: int = len(TEXT + SAID) - 1) -> torch.Tensor:
    """What each head says before the last token: ``[heads, vocab]``."""
    states = features_of((*TEXT, *SAID)[:count], (FINAL_NORM,))[FINAL_NORM][-1]
    weight = target().model.lm_head.weight.detach()
    return torch.log_softmax((medusa_heads()(states) @ weight.T).float(), dim=-1).detach()


def drafted(
    drafter: MedusaDrafter,
    budget: DraftBudget = WIDE,
    ahead: Sequence[int] = (),
    made: DraftContext | None = None,
) -> DraftTree:
    session = opened(drafter, [made or context(TEXT)], [[SAID]])
    (tree,) = session.propose_after([0], [budget], [ahead])
    return tree


def ranked(head: int) -> list[int]:
    return log_probs()[head].argsort(descending=True, stable=True).tolist()


def paths(tree: DraftTree) -> dict[tuple[int, ...], float]:
    return {
        tuple(tree.token_ids[n] for n in tree.path_to(node)): tree.confidences[node]
        for node in range(len(tree))
    }


def test_each_level_is_what_its_head_says_whatever_lies_above() -> None:
    shape = TreeShape.full(3, 2)
    tree = drafted(MedusaDrafter(medusa_heads(), shape=shape))

    expected: dict[tuple[int, ...], float] = {}
    for first in ranked(0)[:3]:
        expected[(first,)] = math.exp(log_probs()[0, first])
        for second in ranked(1)[:3]:
            expected[first, second] = expected[(first,)] * math.exp(log_probs()[1, second])
    assert paths(tree) == pytest.approx(expected, rel=1e-5)
    assert tree.origins == (("medusa",),) * 12


def test_without_a_form_the_likeliest_paths_of_all_are_drafted() -> None:
    tree = drafted(MedusaDrafter(medusa_heads()), DraftBudget(9, 3, VOCAB))

    worths = log_probs()
    two = (worths[0].unsqueeze(1) + worths[1]).flatten()
    three = (two.unsqueeze(1) + worths[2]).flatten()
    best = torch.cat([worths[0], two, three]).topk(9).values.exp().tolist()
    assert sorted(tree.confidences, reverse=True) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("budget", [WIDE, DraftBudget(5, 3, 2), DraftBudget(4, 2, 3)])
def test_measured_accuracies_give_the_best_form_for_the_budget(budget: DraftBudget) -> None:
    tree = drafted(MedusaDrafter(medusa_heads(), accuracies=SHARES), budget)

    levels = [ranks[: budget.branching] for ranks in SHARES[: budget.max_depth]]
    shape = best_tree(levels, budget.num_speculative_tokens)
    named = {tuple(ranked(level)[rank] for level, rank in enumerate(way)) for way in shape.paths}
    assert set(paths(tree)) == named
    assert len(tree) == budget.num_speculative_tokens


def test_tokens_ahead_take_the_place_of_the_first_heads() -> None:
    drafter = MedusaDrafter(medusa_heads())
    (tree,) = [drafted(drafter, DraftBudget(2, 2, 1), ahead=(33,))]

    assert tree.token_ids == (ranked(1)[0], ranked(2)[0])
    assert drafted(drafter, DraftBudget(9, 9, 1), ahead=(33,)).max_depth == 2
    assert drafted(drafter, WIDE, ahead=(33, 34, 35)) == DraftTree()
    measured = drafted(MedusaDrafter(medusa_heads(), accuracies=SHARES), WIDE, ahead=(33,))
    assert len(measured) == len(best_tree(SHARES[1:], 12))


def test_the_newest_state_is_read() -> None:
    session = opened(MedusaDrafter(medusa_heads()), [context(TEXT)], [[SAID[:1], SAID[1:]]])
    (tree,) = session.propose([0], [DraftBudget(1, 1)])

    assert tree.token_ids == (ranked(0)[0],)
    # The fault that this would not see: a state that lies one token back.
    assert log_probs(len(TEXT))[0].argmax() != ranked(0)[0]


def test_unlikely_paths_are_left_out() -> None:
    least = 0.02
    tree = drafted(MedusaDrafter(medusa_heads(), min_confidence=least), DraftBudget(60, 3, 9))
    all_of_them = drafted(MedusaDrafter(medusa_heads()), DraftBudget(60, 3, 9))

    assert min(tree.confidences) >= least > min(all_of_them.confidences)
    assert set(paths(tree)) == {p for p, worth in paths(all_of_them).items() if worth >= least}


def test_trimmed_heads_name_their_tokens_and_those_of_prompt_and_passages() -> None:
    heads, budget = medusa_heads(), DraftBudget(200, 1, VOCAB)
    made = DraftContext(TEXT, ((61, 63),))
    found = set(drafted(MedusaDrafter(heads, HALF), budget, made=made).token_ids)

    assert found == {*HALF, *TEXT, 61, 63}


@pytest.mark.parametrize("ids", [None, HALF])
def test_lm_heads_of_their_own_name_the_tokens(ids: tuple[int, ...] | None) -> None:
    heads = medusa_heads(own_lm_head=True, scale=0.3)
    tree = drafted(MedusaDrafter(heads, ids), DraftBudget(3, 3))

    states = features_of((*TEXT, *SAID)[:-1], (FINAL_NORM,))[FINAL_NORM][-1]
    known = range(VOCAB) if ids is None else sorted({*ids, *TEXT})
    said = [
        max(known, key=(heads(states)[head] @ weight.T).tolist().__getitem__)
        for head, weight in enumerate(heads.own_weights)
    ]
    assert list(tree.token_ids) == said


@pytest.mark.parametrize("mode", MODES)
def test_a_static_tree_of_all_heads_changes_no_answer(mode: str) -> None:
    shape = TreeShape.full(4, 2)
    wishes = [params(mode, number, max_tokens=20, ignore_eos=True) for number in range(3)]
    found = decode(MedusaDrafter(new_heads(), shape=shape), wishes, nodes=20, branching=4)

    plain = decode("none", wishes)
    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in plain]
    assert sum(answer.stats.num_accepted_tokens for answer in found) > 0


def new_heads() -> MedusaHeads:
    return medusa_heads(scale=0.0)


def test_sampled_rows_draft_with_the_noise_of_their_place() -> None:
    seeds = range(200)
    drafter = MedusaDrafter(new_heads())
    rows = [context(TEXT, "sampled", seed) for seed in seeds]
    session = opened(drafter, rows, [[SAID]] * len(seeds))
    trees = session.propose(seeds, [DraftBudget(1, 1)] * len(seeds))

    probs = log_probs_of_new_heads()
    history = torch.tensor((*TEXT, *SAID))
    wanted = [row.sampler.choose(probs, history, 6) for row in rows if row.sampler]
    assert [tree.token_ids for tree in trees] == [(token,) for token in wanted]
    assert len(set(wanted)) > 5


def log_probs_of_new_heads() -> torch.Tensor:
    states = features_of((*TEXT, *SAID)[:-1], (FINAL_NORM,))[FINAL_NORM][-1]
    logits: torch.Tensor = states @ target().model.lm_head.weight.detach().T
    return logits


def test_penalties_see_the_tokens_above_a_node() -> None:
    # Without a penalty new heads say the same token on every level; with it they cannot.
    plain = drafted(MedusaDrafter(new_heads()), DraftBudget(3, 3))
    assert len(set(plain.token_ids)) == 1

    made = DraftContext(TEXT, sampler=TokenSampler(params("greedy", 0, repetition_penalty=9.0)))
    tree = drafted(MedusaDrafter(new_heads()), DraftBudget(3, 3), made=made)
    assert len(set(tree.token_ids)) == 3


def test_drawn_chains_follow_the_law_that_they_state() -> None:
    seeds = range(1000)
    drafter = MedusaDrafter(medusa_heads(), HALF)
    rows = [context((4, 6), "truncated", seed, rejection=True) for seed in seeds]
    session = opened(drafter, rows, [[(8,)]] * len(seeds))
    trees = session.propose(seeds, [DraftBudget(4, 2, 3)] * len(seeds))

    assert all(tree.is_chain and len(tree) == 2 for tree in trees)
    laws = trees[0].draft_probs
    assert laws is not None
    counts = Counter(tree.token_ids[0] for tree in trees)
    tokens = laws[0].nonzero().flatten().tolist()
    assert set(counts) <= set(tokens) <= set(HALF)
    expected = [float(laws[0, token]) * len(seeds) for token in tokens]
    assert stats.chisquare([counts[token] for token in tokens], expected).pvalue > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_confidence": 1.5}, "min_confidence must be from 0 to 1, got 1.5"),
        ({"accuracies": SHARES[:2]}, "accuracies of 2 heads, but 3 heads"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MedusaDrafter(medusa_heads(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"hidden_size": 16}, "states of width 16, but those of 'tiny-1' have 32"),
        ({"hidden_size": 16, "own_lm_head": True}, "states of width 16"),
        ({"vocab_size": 81}, "made for 81 tokens, but 'tiny-1' has 80"),
        ({"own_lm_head": True, "draft_vocab_size": 9}, "LM head of 9 rows .* 80 .* 40"),
    ],
)
def test_heads_of_another_model_are_refused(shape: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MedusaDrafter(medusa_heads(**shape), HALF).bind(target(), TOKENIZER)


def test_the_heads_that_were_given_stay_in_their_precision() -> None:
    heads = medusa_heads().float()
    drafter = MedusaDrafter(heads)
    tree = drafted(drafter, DraftBudget(3, 3))

    assert tree.token_ids == tuple(ranked(level)[0] for level in range(3))
    assert next(heads.parameters()).dtype == torch.float32


def test_another_target_is_bound_anew() -> None:
    drafter = MedusaDrafter(medusa_heads())
    first = drafted(drafter, DraftBudget(3, 3))
    drafter.bind(tiny_target(vocab_size=VOCAB), TOKENIZER)
    second = drafter.open([context(TEXT)])
    second.observe(0, [5], {FINAL_NORM: torch.ones(4, 32)})

    assert len(second.propose([0], [DraftBudget(3, 3)])[0]) == 3
    assert drafted(drafter, DraftBudget(3, 3)) == first
    assert ROOT in first.parents
