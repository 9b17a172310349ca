"""Plain decoding: states that only move forward, and the surface that a session relies on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.tree import DraftTree, pack
from specrag.models.kv_cache import KVCache
from specrag.models.stateful import StatefulCache, StatefulTarget
from tests.architectures import PLAIN, target_of

MAMBA = target_of("mamba")


def prefilled(texts: Sequence[Sequence[int]]) -> StatefulCache:
    assert isinstance(MAMBA, StatefulTarget)
    cache = MAMBA.new_cache(len(texts))
    MAMBA.prefill(texts, cache)
    return cache


def step(cache: KVCache, tokens: Sequence[int]) -> torch.Tensor:
    logits = MAMBA.forward(pack(tokens, [DraftTree()] * len(tokens)), cache).logits
    cache.commit([[0]] * len(tokens))
    return logits[:, 0]


@torch.inference_mode()
def plain_logits(text: Sequence[int]) -> torch.Tensor:
    logits: torch.Tensor = MAMBA.model(torch.tensor([text]), use_cache=False).logits
    return logits[0]


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


tokens = st.integers(3, 39)


@given(data=st.data(), batch=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_any_sequence_of_operations_goes_on_from_the_right_state(
    data: st.DataObject, batch: int
) -> None:
    texts = [data.draw(st.lists(tokens, min_size=1, max_size=6)) for _ in range(batch)]
    cache = prefilled(texts) if texts else StatefulCache(0)
    operations = st.sampled_from(["step", "step", "prefill", "drop", "rollback", "select", "join"])
    for operation in data.draw(st.lists(operations, max_size=6)):
        if operation == "select" and texts:
            rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=4))
            cache.select_rows(rows)
            texts = [list(texts[row]) for row in rows]
        elif operation == "join":
            new = [data.draw(st.lists(tokens, min_size=1, max_size=6))]
            cache.join(prefilled(new))
            texts += new
        elif operation == "rollback":
            lengths = [data.draw(st.integers(0, len(text))) for text in texts]
            cache.rollback(lengths)
            texts = [text[:length] for text, length in zip(texts, lengths, strict=True)]
        elif operation == "prefill" and texts:
            more = [data.draw(st.lists(tokens, min_size=1, max_size=3)) for _ in texts]
            MAMBA.prefill(more, cache)
            texts = [[*text, *new] for text, new in zip(texts, more, strict=True)]
        elif operation == "drop" and texts:
            MAMBA.forward(pack([5] * len(texts), [DraftTree()] * len(texts)), cache)
            cache.commit([[]] * len(texts))
        elif operation == "step" and texts:
            new_tokens = [data.draw(tokens) for _ in texts]
            logits = step(cache, new_tokens)
            for text, token, row in zip(texts, new_tokens, logits, strict=True):
                text.append(token)
                assert_close(row, plain_logits(text)[-1])
        assert cache.lengths == tuple(map(len, texts))
        cache.check_integrity()


@pytest.mark.parametrize("name", PLAIN)
def test_tokens_are_decoded_as_generate_does(name: str) -> None:
    """Each layer counts and keeps in its own way, so the caller must tell what generate tells."""
    target = target_of(name)
    prompt = [5 + (7 * place) % 30 for place in range(11)]
    generated = target.model.generate(
        torch.tensor([prompt]),
        max_new_tokens=9,
        do_sample=False,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )
    cache = target.new_cache(1)
    logits = [target.prefill([prompt], cache).logits[0, 0]]
    for token in generated.sequences[0, len(prompt) : -1].tolist():
        logits.append(target.forward(pack([token], [DraftTree()]), cache).logits[0, 0])
        cache.commit([[0]])

    torch.testing.assert_close(
        torch.stack(logits), torch.cat(generated.logits), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["mamba", "bloom", "openai-gpt"])
def test_logits_of_the_last_positions_and_features_of_all_however_they_were_fed(name: str) -> None:
    target = target_of(name)
    cache = target.new_cache(2)
    target.prefill([[5, 6, 7], [8]], cache)
    output = target.prefill([[9, 10, 11], [12]], cache, num_logits=2, feature_layers=(1, 0))
    with torch.inference_mode():
        plain = target.model(torch.tensor([[5, 6, 7, 9, 10, 11]]), use_cache=False).logits[0]
        short = target.model(torch.tensor([[8, 12]]), use_cache=False).logits[0]

    assert_close(output.logits[0], plain[-2:])
    assert_close(output.logits[1], short[[-1, -1]])  # one new position only, so it repeats
    assert {k: v.shape[:2] for k, v in output.features.items()} == {0: (2, 3), 1: (2, 3)}


def test_tokens_behind_a_state_are_fed_one_by_one_and_only_they(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[int] = []
    forward = MAMBA.model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        fed.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(MAMBA.model, "forward", counted)
    cache = prefilled([[5, 6, 7, 8]])
    step(cache, [9])
    MAMBA.prefill([[10, 11]], cache)
    assert fed == [4, 1, 1, 1]
    cache.rollback(cache.lengths)
    step(cache, [12])
    assert fed == [4, 1, 1, 1, 1]
    cache.rollback([3])
    step(cache, [13])
    assert fed[5:] == [4]  # from the beginning: a state cannot go back


def test_a_row_selected_twice_has_two_states() -> None:
    cache = prefilled([[5, 6]])
    cache.select_rows([0, 0])
    states = [row.state for row in cache.rows]

    assert states[0] is not states[1]
    step(cache, [7, 8])
    logits = step(cache, [9, 9])
    assert_close(logits[0], plain_logits([5, 6, 7, 9])[-1])
    assert_close(logits[1], plain_logits([5, 6, 8, 9])[-1])


def test_joined_rows_are_copies() -> None:
    cache, other = prefilled([[5]]), prefilled([[6, 7]])
    cache.join(other)
    assert cache.rows[1] is not other.rows[0]
    assert cache.rows[1].state is not other.rows[0].state
    step(other, [30])

    assert_close(step(cache, [8, 9])[1], plain_logits([6, 7, 9])[-1])


def test_what_a_state_cannot_do_is_refused_with_the_reason() -> None:
    cache = prefilled([[5, 6]])
    with pytest.raises(ValueError, match="a KVCache cannot join a StatefulCache"):
        cache.join(KVCache(0, 1))
    with pytest.raises(ValueError, match="cannot export row 0"):
        cache.export_row(0, 1)
    with pytest.raises(ValueError, match="cannot import into row 0"):
        cache.import_row(0, [])
    with pytest.raises(ValueError, match="needs a cache of its own, not a KVCache"):
        MAMBA.prefill([[5]], KVCache(2, 1))
    with pytest.raises(ValueError, match="cannot roll back to 3: the row holds 2"):
        cache.rollback([3])
    with pytest.raises(ValueError, match="got 2 paths for 1 rows"):
        cache.commit([[0], [0]])
    MAMBA.forward(pack([7], [DraftTree()]), cache)
    with pytest.raises(ValueError, match="skips a node"):
        cache.commit([[1]])
    with pytest.raises(ValueError, match="nodes pending"):
        cache.join(prefilled([[8]]))
    cache.commit([[0]])  # the pass is still there
    assert cache.lengths == (3,)
    cache.check_integrity()


def test_the_integrity_check_names_planted_damage() -> None:
    cache = prefilled([[5, 6]])
    cache.rows[0].token_ids.append(7)
    with pytest.raises(AssertionError, match=r"rows hold \(3,\) tokens, not \(2,\)"):
        cache.check_integrity()
    cache.rows[0].token_ids.pop()
    cache.rows[0].fed = 3
    with pytest.raises(AssertionError, match="a state is ahead"):
        cache.check_integrity()
