"""Strict decoding: passes of one width, and plain decoding's answer bit for bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.row import DecodingRequest, Row
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.decoding.tree import DraftTree
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.lean_target import LeanTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.decoding.scripts import ScriptedDrafter, SilentDrafter

STRICT = SpeculationConfig(num_speculative_tokens=7, strict=True)
Kind = torch.dtype | str
"""A precision, or a quantization."""

DTYPES: list[Kind] = [torch.float32, torch.bfloat16, torch.float16, "float16", "int8"]
TOKENIZER = tiny_tokenizer()
OPTIONS: list[dict[str, Any]] = [{}, {"temperature": 1.0, "frequency_penalty": 0.5, "seed": 3}]


@cache
def wide_target(dtype: Kind) -> HuggingFaceTarget:
    """Heads of 64 dimensions, as real models have: kernels group their sums as they do there."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=192,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.1)
    return made_of(model, dtype)


@cache
def target(dtype: Kind) -> HuggingFaceTarget:
    return made_of(tiny_target(seed=1).model, dtype)


def made_of(model: LlamaForCausalLM, dtype: Kind) -> HuggingFaceTarget:
    if isinstance(dtype, str):
        return LeanTarget(model, "packed", dtype)
    return HuggingFaceTarget(model.to(dtype), "plain")


def request(number: int, **options: Any) -> DecodingRequest:
    rng = random.Random(number)
    prompt = tuple(rng.randrange(4, 64) for _ in range(rng.randint(1, 30)))
    return DecodingRequest(prompt, SamplingParams(max_tokens=40, ignore_eos=True, **options))


def decode(
    dtype: Kind,
    drafter: Drafter,
    asked: Sequence[DecodingRequest],
    costs: PassCosts | None = None,
) -> list[Row]:
    session = DecodingSession(target(dtype), drafter, TOKENIZER, asked, STRICT, costs)
    while not session.finished:
        session.step()
    return session.rows


@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("drafter", [SuffixDrafter(), PromptLookupDrafter()])
def test_tokens_and_log_probabilities_are_those_of_plain_decoding(
    drafter: Drafter, dtype: Kind, options: dict[str, Any]
) -> None:
    accepted = 0
    for number in range(3):
        asked = [request(number, **options)]
        (found,), (expected,) = decode(dtype, drafter, asked), decode(dtype, SilentDrafter(), asked)
        assert found.token_ids == expected.token_ids
        assert found.logprobs == expected.logprobs  # equal, not near
        accepted += found.stats.num_accepted_tokens
    assert accepted > (5 if not options else 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_so_are_those_of_a_batch_whose_rows_end_at_different_times(dtype: Kind) -> None:
    for start in (0, 10):
        asked = [
            replace(each, params=replace(each.params, max_tokens=10 + 12 * row))
            for row, each in enumerate(request(start + row) for row in range(3))
        ]
        found = decode(dtype, SuffixDrafter(), asked)
        assert sum(row.stats.num_accepted_tokens for row in found) > 0
        for row, expected in zip(found, decode(dtype, SilentDrafter(), asked), strict=True):
            assert (row.token_ids, row.logprobs) == (expected.token_ids, expected.logprobs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_so_are_those_at_the_end_of_the_context(dtype: Kind) -> None:
    prompt = tuple(4 + number % 60 for number in range(490))
    params = SamplingParams(max_tokens=100, temperature=0.5, seed=1, ignore_eos=True)
    asked = [DecodingRequest(prompt, params)]
    (plain,) = decode(dtype, SilentDrafter(), asked)
    truth = plain.token_ids

    def guess(_: object, output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        return DraftTree.chain([*truth[len(output) :][:3], 9][: budget.max_depth])

    (found,) = decode(dtype, ScriptedDrafter(guess), asked)
    assert (found.token_ids, found.logprobs) == (truth, plain.logprobs)
    assert found.stats.num_accepted_tokens > 10


@pytest.mark.parametrize("length", [240, 300, 500, 755])
@pytest.mark.parametrize("dtype", DTYPES)
def test_so_are_those_of_a_model_with_wide_heads_behind_a_long_prompt(
    dtype: Kind, length: int
) -> None:
    rng = random.Random(length)
    params = SamplingParams(max_tokens=24, temperature=1.0, seed=1, ignore_eos=True)
    asked = DecodingRequest(tuple(rng.randrange(1, 64) for _ in range(length)), params)
    truth: list[int] = []

    def guess(_: object, output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        return DraftTree.chain([*truth[len(output) :][:3], 9][: budget.max_depth])

    rows = []
    for drafter in (SilentDrafter(), ScriptedDrafter(guess)):
        session = DecodingSession(wide_target(dtype), drafter, TOKENIZER, [asked], STRICT)
        while not session.finished:
            session.step()
        rows += session.rows
        truth = session.rows[0].token_ids

    plain, found = rows
    assert (found.token_ids, found.logprobs) == (plain.token_ids, plain.logprobs)
    assert found.stats.num_accepted_tokens > 10


@pytest.mark.parametrize("costs", [None, PassCosts((1, 8), (1.0, 3.0))])
@pytest.mark.parametrize("num_rows", [1, 3])
def test_every_pass_has_the_same_width_and_drafts_are_chains(
    num_rows: int, costs: PassCosts | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = target(torch.float32)
    widths, real = set(), made.forward
    seen: list[DraftBudget] = []

    def forward(tree_pass: Any, cache: Any, *rest: Any) -> Any:
        widths.add(tree_pass.token_ids.shape)
        return real(tree_pass, cache, *rest)

    class Watched(SuffixDrafter):
        def open(self, contexts: Any) -> Any:
            session = super().open(contexts)
            propose = session.propose

            def watched(rows: Any, budget: Any) -> list[DraftTree]:
                seen.extend(budget)
                trees = propose(rows, budget)
                for tree in trees:
                    assert tree.max_depth == len(tree)
                return trees

            session.propose = watched  # type: ignore[method-assign]
            return session

    monkeypatch.setattr(made, "forward", forward)
    asked = [request(number) for number in range(num_rows)]
    for drafter in (Watched(), SilentDrafter()):
        decode(torch.float32, drafter, asked, costs)

    assert {width for _, width in widths} == {8}
    assert {budget.branching for budget in seen} == {1}


def test_a_target_that_only_decodes_plainly_is_strict_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = tiny_target(seed=1)
    made.no_speculation = "it cannot look back"

    class Unbound(Drafter):
        """As a drafter with a model is, when it was not bound."""

        name = "unbound"

        def open(self, contexts: Any) -> Any:
            raise AssertionError("it must be bound to a target before it is opened")

    asked = [request(number) for number in range(2)]
    widths = set()
    real = made.forward

    def forward(tree_pass: Any, cache: Any, *rest: Any) -> Any:
        widths.add(tree_pass.token_ids.shape[1])
        return real(tree_pass, cache, *rest)

    monkeypatch.setattr(made, "forward", forward)
    for config in (STRICT, replace(STRICT, strict=False, optimistic="on")):
        session = DecodingSession(made, Unbound(), TOKENIZER, asked[:1], config)
        session.step()
        session.add(asked[1])
        while not session.finished:
            session.step()
        session.close()
        expected = decode(torch.float32, SilentDrafter(), asked)
        assert [row.token_ids for row in session.rows] == [row.token_ids for row in expected]
    assert widths == {1}


def test_of_a_drafter_that_branches_all_the_same_the_likeliest_chain_is_verified() -> None:
    asked = [request(1)]
    (plain,) = decode(torch.float32, SilentDrafter(), asked)
    truth = plain.token_ids

    def guess(_: object, output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        tree = DraftTree.from_paths([truth[len(output) :][:2], [9, 9]])
        likely = [0.9 if token != 9 else 0.1 for token in tree.token_ids]
        return replace(tree, confidences=tuple(likely))

    (found,) = decode(torch.float32, ScriptedDrafter(guess), asked)
    assert (found.token_ids, found.logprobs) == (truth, plain.logprobs)
    assert found.stats.num_draft_tokens <= 2 * found.stats.num_drafts
    assert found.stats.num_accepted_tokens > 10
