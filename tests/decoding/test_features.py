"""What a drafter is told of the target's states equals one plain forward over prompt and answer."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.features import FeatureLog
from specrag.decoding.prefill import prefill
from specrag.decoding.row import DecodingRequest
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.decoding.tree import DraftTree
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.models import huggingface
from specrag.models.prefix_cache import PrefixCache
from specrag.models.target import FINAL_NORM
from tests.architectures import target_of
from tests.decoding.scripts import (
    CONFIG,
    MODES,
    TOKENIZER,
    VOCAB,
    ScriptedDrafter,
    alone,
    check_between_rounds,
    knowing,
    open_session,
    random_tree,
    request,
    target,
    truthful,
)

LAYERS = (0, FINAL_NORM)
BASE = tuple(random.Random(5).randrange(1, VOCAB) for _ in range(48))


@cache
@torch.inference_mode()
def plain(token_ids: tuple[int, ...]) -> dict[int, torch.Tensor]:
    listed = (
        target()
        .model(input_ids=torch.tensor([token_ids]), use_cache=False, output_hidden_states=True)
        .hidden_states
    )
    return {0: listed[1][0], FINAL_NORM: listed[2][0]}


def assert_features(found: Mapping[int, torch.Tensor], token_ids: Sequence[int]) -> None:
    """Checks states of some layers against those of whole text."""
    expected = plain(tuple(token_ids))
    assert set(found) == set(LAYERS)
    for layer, states in found.items():
        torch.testing.assert_close(states, expected[layer], atol=1e-4, rtol=0)


def played(session: DecodingSession, *joining: DecodingRequest) -> list[list[int]]:
    """Decodes to the end, a row joining every other round; the tokens of each row by round."""
    sizes: list[list[int]] = [[] for _ in session.rows]
    later = list(joining)
    for number in range(1000):
        if later and number % 2:
            session.add(later.pop(0))
            sizes.append([])
        if session.finished and not later:
            return sizes
        for index, update in session.step().items():
            sizes[index].append(len(update.token_ids))
        check_between_rounds(session)
    raise AssertionError("the session does not end")


def check(session: DecodingSession, drafter: ScriptedDrafter, sizes: list[list[int]]) -> None:
    """Each call brought the states that said its tokens, the first one all of the prompt."""
    for row, pieces, counts in zip(session.rows, drafter.sessions[0].features, sizes, strict=True):
        prompt = row.request.prompt_ids
        whole: dict[int, list[torch.Tensor]] = {layer: [] for layer in LAYERS}
        for piece, count in zip(pieces, [len(prompt), *counts[1:]], strict=True):
            assert piece is not None
            assert [len(states) for states in piece.values()] == [count] * len(LAYERS)
            for layer, states in piece.items():
                whole[layer].append(states)
        text = (*prompt, *row.token_ids)
        assert_features({layer: torch.cat(parts) for layer, parts in whole.items()}, text[:-1])


BATCH = [request(20 + n, mode, max_tokens=6 + n) for n, mode in enumerate([*MODES, "greedy"])]
JOINING = [request(40, "sampled", max_tokens=7), request(41, max_tokens=9)]
CONFIGS = {
    "tree": CONFIG,
    "chain": dataclasses.replace(CONFIG, branching=1),
    "strict": dataclasses.replace(CONFIG, strict=True),
    "ahead": dataclasses.replace(CONFIG, optimistic="on"),
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_features_are_those_of_a_plain_forward(
    config: SpeculationConfig, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "PREFILL_CHUNK", 4)
    drafter = ScriptedDrafter(knowing([*BATCH, *JOINING]), LAYERS)
    cache = PrefixCache(10**9) if kept else None
    session = open_session(drafter, BATCH, config, None, cache)
    sizes = played(session, *JOINING)
    session.close()

    check(session, drafter, sizes)
    assert {count for counts in sizes for count in counts} >= {1, 2, 3}


ENDS: dict[str, Callable[[tuple[int, ...]], dict[str, Any]]] = {
    "end token": lambda tokens: {"stop_token_ids": (tokens[2],)},
    "stop string": lambda tokens: {"stop": (TOKENIZER.decode(tokens[1:3]),)},
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_states_behind_an_end_inside_a_draft_are_left_out(end: str, kept: bool) -> None:
    longer = DecodingRequest(BASE[:20], SamplingParams(temperature=1.0, max_tokens=12, seed=3))
    tokens = alone(longer).token_ids
    assert len(set(tokens[:3])) == 3 <= len(tokens) - 3
    params = dataclasses.replace(longer.params, **ENDS[end](tokens))
    drafter = ScriptedDrafter(truthful([longer]), LAYERS)
    cache = PrefixCache(10**9) if kept else None
    asked = dataclasses.replace(longer, params=params)
    session = open_session(drafter, [asked], CONFIG, None, cache)
    sizes = played(session)

    # Of a draft of four right nodes and the bonus token, two tokens belong to the answer.
    assert sizes == [[1, 2]]
    check(session, drafter, sizes)
    if cache is not None:
        ((text, states),) = cache._entries.items()
        assert text == (*asked.prompt_ids, *tokens[:2])
        assert_features(states.features, text)


def guesses(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
    return random_tree(random.Random(f"{prompt} {output}"))


def decoded(
    cache: PrefixCache | None, asked: Sequence[DecodingRequest], layers: tuple[int, ...] = LAYERS
) -> tuple[DecodingSession, ScriptedDrafter]:
    """Decodes to the end and checks what the drafter was told, if anything."""
    drafter = ScriptedDrafter(guesses, layers)
    session = open_session(drafter, asked, CONFIG, None, cache)
    sizes = played(session)
    session.close()
    if layers:
        check(session, drafter, sizes)
    return session, drafter


def reused(session: DecodingSession) -> list[int]:
    return [row.stats.num_cached_tokens for row in session.rows]


PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)


def test_reused_prompts_bring_their_features_along() -> None:
    cache = PrefixCache(10**9)
    first, _ = decoded(cache, [DecodingRequest(BASE, PARAMS)])
    turn = (*BASE, *first.rows[0].token_ids, 3, 4, 5)
    prompts = [BASE, turn, (*BASE[:30], 1, 2), BASE[:20], (7, *BASE)]
    asked = [DecodingRequest(prompt, PARAMS) for prompt in prompts]
    second, _ = decoded(cache, asked)

    assert reused(second) == [47, 53, 30, 19, 0]
    for text, states in cache._entries.items():
        assert_features(states.features, text)
        # Copies that hold on to nothing else.
        sizes = [f.untyped_storage().nbytes() / f.element_size() for f in states.features.values()]
        assert sizes == [len(text) * 32] * len(LAYERS)


def test_what_was_kept_without_features_is_of_no_use_where_they_are_needed() -> None:
    cache = PrefixCache(10**9)
    asked = [DecodingRequest(BASE, PARAMS)]
    runs: list[tuple[tuple[int, ...], int]] = [((), 0), (LAYERS, 0), (LAYERS, 47), ((), 47)]
    for layers, expected in runs:
        assert reused(decoded(cache, asked, layers)[0]) == [expected]

    ((text, states),) = cache._entries.items()
    assert_features(states.features, text)


def test_a_cancelled_and_a_closed_row_are_kept_with_their_features() -> None:
    cache = PrefixCache(10**9)
    asked = [DecodingRequest(BASE[start:], PARAMS) for start in (0, 3)]
    session = open_session(ScriptedDrafter(guesses, LAYERS), asked, CONFIG, None, cache)
    for _ in range(3):
        session.step()
    session.cancel(0)
    session.close()

    assert len(cache) == 2
    for text, states in cache._entries.items():
        assert_features(states.features, text)


def test_answers_to_one_prompt_share_its_features() -> None:
    params = [dataclasses.replace(PARAMS, temperature=1.5, seed=seed) for seed in range(3)]
    asked = [DecodingRequest(BASE, each) for each in params]
    asked.insert(1, DecodingRequest(BASE[:20], PARAMS))
    cache = PrefixCache(10**9)
    for expected in ([0] * 4, [47, 19, 47, 47]):
        session, drafter = decoded(cache, asked)
        assert reused(session) == expected
        first = [pieces[0] for pieces in drafter.sessions[0].features]
        assert first[0] is first[2] is first[3] is not None
        assert len({tuple(row.token_ids) for row in session.rows}) == 4


def test_features_of_a_prefill_end_where_the_prompt_does() -> None:
    asked = [request(1, traced=2), request(2), request(1, "sampled")]
    found = prefill(target(), asked, 64, feature_layers=LAYERS)

    for each, features in zip(asked, found.features, strict=True):
        assert_features(features, each.prompt_ids)
    assert [dict(features) for features in prefill(target(), asked, 64).features] == [{}] * 3


@pytest.mark.parametrize("place", ["prefill", "forward", "observe"])
def test_a_round_that_failed_brings_its_features_when_it_is_tried_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = ScriptedDrafter(knowing(BATCH), LAYERS)
    cache = PrefixCache(10**9)
    session = open_session(drafter, BATCH, CONFIG, None, cache)
    owner: Any = drafter.sessions[0] if place == "observe" else target()
    real, calls = getattr(owner, place), 0

    def failing(*args: Any) -> Any:
        nonlocal calls
        found = real(*args)
        calls += 1
        if calls % 2:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(owner, place, failing)
    sizes: list[list[int]] = [[] for _ in BATCH]
    num_failed = 0
    while not session.finished:
        before = [len(row.token_ids) for row in session.rows]
        try:
            session.step()
        except KeyboardInterrupt:
            num_failed += 1
        for counts, row, old in zip(sizes, session.rows, before, strict=True):
            if len(row.token_ids) > old:
                counts.append(len(row.token_ids) - old)
    session.close()

    assert num_failed > 0
    check(session, drafter, sizes)
    for text, states in cache._entries.items():
        assert_features(states.features, text)


def test_members_are_told_too_and_those_that_need_nothing_are_not_disturbed() -> None:
    inner = ScriptedDrafter(guesses, LAYERS)
    drafter = CompositeDrafter([SuffixDrafter(), inner])
    session = open_session(drafter, BATCH)
    sizes = played(session)

    assert drafter.feature_layers == LAYERS
    check(session, inner, sizes)


def test_nothing_is_captured_unless_a_layer_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a hook was registered")

    monkeypatch.setattr(torch.nn.Module, "register_forward_hook", never)
    _, drafter = decoded(PrefixCache(10**9), BATCH, layers=())
    assert {piece for pieces in drafter.sessions[0].features for piece in pieces} == {None}

    # Nor by a target that only decodes plainly, whatever the drafter wants.
    wanting = ScriptedDrafter(guesses, LAYERS)
    asked = [DecodingRequest((5, 6, 7), PARAMS)]
    session = DecodingSession(target_of("bloom"), wanting, TOKENIZER, asked, CONFIG)
    while not session.finished:
        session.step()
    assert len(session.rows[0].token_ids) == PARAMS.max_tokens
    assert not wanting.sessions


def test_features_are_held_no_longer_than_needed() -> None:
    log = FeatureLog((1, 1), keeps_all=False)
    for _ in range(2):
        log.add(0, {1: torch.ones(2, 3)})
    assert log.layers == (1,)
    assert log.newest(0) is not None
    assert log.newest(0) is None
    assert log.take_all(0) == {}

    log = FeatureLog((1,), keeps_all=True)
    for _ in range(2):
        log.add(0, {1: torch.ones(2, 3)})
    assert log.take_all(0)[1].shape == (4, 3)
    assert log.take_all(0) == {}
