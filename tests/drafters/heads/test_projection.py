from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from specrag.decoding.drafter import DraftContext
from specrag.drafters.heads.logit_rule import LogitRule, measured_rule
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError, ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.target import FINAL_NORM
from specrag.models.tiny import tiny_target

VOCAB, HIDDEN = 24, 16
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def made(network: Any) -> HuggingFaceTarget:
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, 0.7, generator=draw)
    return HuggingFaceTarget(network.float(), type(network).__name__)


FAMILIES: dict[str, Callable[[], HuggingFaceTarget]] = {
    "plain": lambda: tiny_target(vocab_size=VOCAB),
    "bias": lambda: made(PhiForCausalLM(PhiConfig(**SHAPE))),
    "softcap": lambda: made(
        Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=2.0))
    ),
    "factor": lambda: made(CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25))),
    "divisor": lambda: made(GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=8.0))),
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> HuggingFaceTarget:
    return FAMILIES[request.param]()


def read(target: HuggingFaceTarget, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    output = target.prefill([tokens], target.new_cache(1), len(tokens), (FINAL_NORM,))
    return output.features[FINAL_NORM], output.logits


def test_logits_are_the_targets_own(family: HuggingFaceTarget) -> None:
    states, logits = read(family, [5, 9, 2, 17])
    ids = [3, 17, 0, 23]

    assert torch.allclose(Projection.shared(family).logits(states), logits, atol=1e-5)
    trimmed = Projection.shared(family, ids)
    assert torch.allclose(trimmed.logits(states), logits[..., ids], atol=1e-5)


def test_added_tokens_have_the_targets_own_logits(family: HuggingFaceTarget) -> None:
    states, logits = read(family, [5, 9, 2, 17])
    part = Projection.shared(family, [3]).open([DraftContext((8, 21))]).at([0])

    assert part.token_ids.tolist() == [3, 8, 21]
    assert torch.allclose(part.logits(states), logits[..., [3, 8, 21]], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("plain", LogitRule()),
        ("bias", LogitRule()),
        ("softcap", LogitRule(1.0, 2.0)),
        ("factor", LogitRule(0.25)),
        ("divisor", LogitRule(1 / 8)),
    ],
)
def test_what_a_family_does_to_its_logits_is_measured(name: str, rule: LogitRule) -> None:
    found = measured_rule(FAMILIES[name]())

    assert found.scale == pytest.approx(rule.scale, rel=1e-4)
    assert found.softcap == rule.softcap


def test_the_measure_survives_low_precision() -> None:
    target = FAMILIES["factor"]()
    target.model.bfloat16()

    assert measured_rule(target).scale == pytest.approx(0.25, rel=0.01)
    plain = tiny_target()
    plain.model.bfloat16()
    assert measured_rule(plain) == LogitRule()


def test_logits_of_another_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target(vocab_size=VOCAB)
    forward = target.model.forward

    def squared(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits = output.logits**2
        return output

    monkeypatch.setattr(target.model, "forward", squared)

    with pytest.raises(ModelError, match=r"tiny-0.*neither a factor nor a soft cap"):
        Projection.shared(target)


def test_a_target_without_a_readable_lm_head_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target(vocab_size=VOCAB)
    weight = target.model.lm_head.weight
    target.model.lm_head.weight = nn.Parameter(weight.to(torch.int8), requires_grad=False)

    with pytest.raises(ModelError, match="cannot be read by rows"):
        Projection.shared(target)
    monkeypatch.setattr(target.model, "get_output_embeddings", lambda: None)
    with pytest.raises(ModelError, match="cannot be found"):
        Projection.shared(target)


def test_the_whole_lm_head_is_not_copied() -> None:
    target = tiny_target(vocab_size=VOCAB)
    weight = target.model.lm_head.weight
    whole = Projection.shared(target)
    in_batch = whole.open([DraftContext((1, 2))]).at([0])

    for projection in (whole, in_batch):
        assert projection.weight.data_ptr() == weight.data_ptr()
        assert projection.token_ids.tolist() == list(range(VOCAB))
        logits = projection.logits(torch.ones(2, 32))
        assert projection.widened(logits) is logits


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[DraftContext]]:
    # Numbers beyond the vocabulary: tokenizers may have more tokens than their model.
    texts = st.lists(st.integers(0, VOCAB + 3), max_size=6).map(tuple)
    ids = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8, unique=True))
    contexts = st.builds(DraftContext, texts, st.lists(texts, max_size=2).map(tuple))
    return ids, draw(st.lists(contexts, min_size=1, max_size=4))


TARGET = tiny_target(vocab_size=VOCAB)


@given(batch=batches(), data=st.data())
@settings(deadline=None, max_examples=60)
def test_each_row_names_the_common_tokens_and_its_own(
    batch: tuple[list[int], list[DraftContext]], data: st.DataObject
) -> None:
    ids, contexts = batch
    weight = TARGET.model.lm_head.weight.detach()
    projection = Projection(weight, VOCAB, ids).open(contexts[:1])
    assert [projection.join(context) for context in contexts[1:]] == [*range(1, len(contexts))]
    places = st.lists(st.integers(0, len(contexts) - 1), min_size=1, max_size=4, unique=True)
    for rows in data.draw(st.lists(places, min_size=1, max_size=3)):
        states = torch.randn(len(rows), 3, 32)
        full = states @ weight.T
        part = projection.at(rows)
        wide = part.widened(part.logits(states))

        assert part.token_ids.tolist()[: len(ids)] == ids
        assert len(set(part.token_ids.tolist())) == len(part.token_ids)
        for slot, row in enumerate(rows):
            said = {*contexts[row].prompt_ids, *sum(contexts[row].passages, ())}
            known = {*ids, *(token for token in said if token < VOCAB)}
            for place in range(3):
                assert set(wide[slot, place].isfinite().nonzero().flatten().tolist()) == known
            named = sorted(known)
            assert torch.allclose(wide[slot][:, named], full[slot][:, named], atol=1e-4)


def test_rows_are_gathered_only_when_they_change() -> None:
    projection = Projection.shared(TARGET, [1]).open([DraftContext((5,)), DraftContext((6,))])
    first = projection.at([0, 1])

    assert projection.at([0, 1]) is first
    assert projection.at([1]).token_ids.tolist() == [1, 6]
    projection.join(DraftContext((7, 5)))
    assert projection.at([0, 2]).token_ids.tolist() == [1, 5, 7]


@pytest.mark.parametrize("count", [1, 2, 4, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_states_and_many_have_the_same_logits(count: int, dtype: torch.dtype) -> None:
    network = PhiForCausalLM(PhiConfig(**SHAPE))
    target = made(network)
    network.to(dtype)
    states = torch.randn(count, HIDDEN).to(dtype)
    ids = [7, 3, 11, 20]
    with torch.inference_mode():
        full = network.lm_head(states).float()[:, [*ids, 1, 5]]
        part = Projection.shared(target, ids).open([DraftContext((5, 1, 3))] * count)
        logits = part.at(range(count)).logits(states)
        whole = Projection.shared(target).logits(states)

    assert torch.allclose(logits.float(), full, rtol=0.02, atol=0.05)
    assert torch.allclose(whole.float()[:, [*ids, 1, 5]], full, rtol=0.02, atol=0.05)
    if dtype == torch.float32:
        assert torch.allclose(logits, full, atol=1e-5)


def test_places_tell_where_a_token_stands() -> None:
    projection = Projection.shared(TARGET, [4, 2, 9])

    assert projection.places(torch.tensor([[9, 2], [3, 4]])).tolist() == [[2, 1], [-1, 0]]


def test_a_trimmed_lm_head_of_its_own_names_its_own_tokens_only() -> None:
    weight = torch.randn(3, HIDDEN)
    projection = Projection.own(weight, [7, 2, 5], VOCAB)
    part = projection.open([DraftContext((1, 2, 3))]).at([0])
    states = torch.randn(1, HIDDEN)

    assert part is projection
    assert projection.weight.data_ptr() == weight.data_ptr()
    wide = projection.widened(projection.logits(states))
    assert wide.isfinite().nonzero()[:, 1].tolist() == [2, 5, 7]
    assert torch.allclose(wide[:, [7, 2, 5]], states @ weight.T, atol=1e-5)


def test_a_whole_lm_head_of_its_own_can_be_trimmed_and_still_names_a_rows_own_tokens() -> None:
    weight = torch.randn(VOCAB, HIDDEN)
    part = Projection.own(weight, [7, 2], VOCAB).open([DraftContext((5,))]).at([0])

    assert part.token_ids.tolist() == [7, 2, 5]
    states = torch.randn(1, HIDDEN)
    assert torch.allclose(part.logits(states), states @ weight[[7, 2, 5]].T, atol=1e-5)


def test_another_precision_changes_only_that() -> None:
    projection = Projection.shared(TARGET, [4, 2])
    other = projection.to(dtype=torch.float64)
    states = torch.randn(2, 32)

    assert other.logits(states.double()).dtype == torch.float64
    assert torch.allclose(other.logits(states.double()).float(), projection.logits(states))
    assert projection.to(dtype=torch.float32).open([DraftContext((9,))]).at([0]) is not projection


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, VOCAB], f"reach from 3 to {VOCAB}, but the target has {VOCAB} tokens"),
        ([-1, 2], "reach from -1 to 2"),
        ([3, 3, 4], "3 draft tokens name only 2 different ones"),
        ([], "at least one"),
    ],
)
def test_tokens_that_the_target_does_not_have_are_refused(ids: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Projection.shared(TARGET, ids)


def test_a_list_of_another_length_than_the_lm_head_is_refused() -> None:
    with pytest.raises(ConfigError, match="LM head of 3 rows names neither all 24 .* nor the 2"):
        Projection.own(torch.randn(3, HIDDEN), [7, 2], VOCAB)
    with pytest.raises(ConfigError, match="LM head of 3 rows"):
        Projection.own(torch.randn(3, HIDDEN), None, VOCAB)
