"""The loop: what holds between rounds, what an answer reports, and how sessions end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.row import DecodingRequest, Row
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.decoding.tree import ROOT, DraftTree
from specrag.errors import InputError
from specrag.models.tiny import tiny_target, tiny_tokenizer

TARGET, TOKENIZER = tiny_target(seed=2, max_context=64), tiny_tokenizer()
CONFIG = SpeculationConfig(num_speculative_tokens=6, max_depth=4, branching=3)
MakeDrafter = Callable[..., Any]


def request(number: int, traced: int = 0, **options: Any) -> DecodingRequest:
    rng = random.Random(number)
    prompt = tuple(rng.randrange(4, 64) for _ in range(rng.randint(2, 8)))
    params = SamplingParams(**{"max_tokens": 3 + 4 * number, "ignore_eos": True} | options)
    return DecodingRequest(prompt, params, num_traced=traced)


def open_session(drafter: Drafter, requests: Sequence[DecodingRequest]) -> DecodingSession:
    return DecodingSession(TARGET, drafter, TOKENIZER, requests, CONFIG)


def rounds(session: DecodingSession) -> Iterator[DecodingSession]:
    """Yields the session after every round."""
    while not session.finished:
        session.step()
        yield session


def decoded(drafter: Drafter, requests: Sequence[DecodingRequest]) -> list[Row]:
    session = open_session(drafter, requests)
    return list(rounds(session))[-1].rows


@torch.inference_mode()
def plain_log_probs(token_ids: Sequence[int]) -> torch.Tensor:
    logits = TARGET.model(torch.tensor([token_ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits, -1)


@cache
def truth(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The greedy continuation by plain forwards over the whole text."""
    text = prompt
    while len(text) < len(prompt) + 20:
        text += (int(plain_log_probs(text)[-1].argmax()),)
    return text[len(prompt) :]


def oracle(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
    return DraftTree.chain(truth(prompt)[len(output) : len(output) + budget.max_depth])


def half_oracle(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
    """The truth as the second child of each node, for some depths, and an empty draft at times."""
    right = truth(prompt)[len(output) :][: len(output) % 4]
    return DraftTree.from_paths([[9], [*right[:1], 9], [*right, 9]] if right else [])


every_guess = pytest.mark.parametrize("guess", [oracle, half_oracle])


@every_guess
def test_between_rounds_the_cache_holds_all_tokens_of_running_rows_but_the_last(
    guess: Any, scripted: MakeDrafter
) -> None:
    session = open_session(scripted(guess), [request(number) for number in range(4)])
    sizes = []
    for _ in rounds(session):
        running = [row for row in session.rows if not row.finish_reason]
        expected = tuple(len(r.request.prompt_ids) + len(r.token_ids) - 1 for r in running)
        if running:
            assert session.cache.lengths == expected
        session.cache.check_integrity()
        sizes.append(len(running))
        for row in session.rows:
            assert row.history.view().tolist() == [*row.request.prompt_ids, *row.token_ids]

    # The rows ended at different times, or the test would have shown little.
    assert len(set(sizes)) >= 4
    assert [len(row.token_ids) for row in session.rows] == [3, 7, 11, 15]


@every_guess
def test_each_row_says_what_plain_forwards_say(guess: Any, scripted: MakeDrafter) -> None:
    for row in decoded(scripted(guess), [request(number) for number in range(4)]):
        assert tuple(row.token_ids) == truth(row.request.prompt_ids)[: len(row.token_ids)]


def test_updates_are_for_running_rows_and_add_up_to_the_answer(scripted: MakeDrafter) -> None:
    session = open_session(scripted(half_oracle), [request(number) for number in range(3)])
    tokens: dict[int, list[int]] = {0: [], 1: [], 2: []}
    texts = {0: "", 1: "", 2: ""}
    while not session.finished:
        running = {index for index, row in enumerate(session.rows) if not row.finish_reason}
        updates = session.step()
        assert set(updates) == running
        for index, update in updates.items():
            tokens[index] += update.token_ids
            texts[index] += update.text
            assert update.finish_reason == session.rows[index].finish_reason

    for index, row in enumerate(session.rows):
        assert tokens[index] == row.token_ids
        assert texts[index] == row.text == TOKENIZER.decode(row.token_ids)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.3, "repetition_penalty": 1.2, "seed": 3}]
)
def test_logprobs_are_those_of_the_unprocessed_plain_model(
    options: dict[str, Any], scripted: MakeDrafter
) -> None:
    requests = [request(number, traced=1, **options) for number in range(3)]
    for row in decoded(scripted(half_oracle), requests):
        start = len(row.request.prompt_ids)
        log_probs = plain_log_probs([*row.request.prompt_ids, *row.token_ids])[start - 1 : -1]
        expected = [
            float(row_[token]) for row_, token in zip(log_probs, row.token_ids, strict=True)
        ]

        assert row.logprobs == pytest.approx(expected, abs=1e-4)
        assert row.trace is not None
        assert [record.token_id for record in row.trace.tokens] == row.token_ids
        for record, node in zip(row.trace.tokens, log_probs, strict=True):
            probs = node.exp().sort(descending=True).values
            assert record.logprob == pytest.approx(float(node[record.token_id]), abs=1e-4)
            assert record.entropy == pytest.approx(float(-(node.exp() * node).sum()), abs=1e-3)
            assert record.margin == pytest.approx(float(probs[0] - probs[1]), abs=1e-4)


def test_the_trace_tells_what_was_drafted_for_each_position(scripted: MakeDrafter) -> None:
    wrong = 9

    def guess(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        # Two accepted, one rejected; then nothing for a round.
        done = len(output) % 4 == 0
        return DraftTree() if done else DraftTree.chain([*truth(prompt)[len(output) :][:2], wrong])

    (row,) = decoded(scripted(guess), [request(3, traced=1)])
    assert row.trace is not None
    prompt, records = row.request.prompt_ids, row.trace.tokens
    log_probs = plain_log_probs([*prompt, *row.token_ids])[len(prompt) - 1 :]
    assert wrong not in row.token_ids
    # Prefill, two accepted and the recovered one, a plain round, and again.
    drafted = [None, *row.token_ids[1:3], wrong, None, *row.token_ids[5:7], wrong]
    for place, (record, draft) in enumerate(zip(records[:8], drafted, strict=True)):
        expected = None if draft is None else float(log_probs[place][draft])
        assert record.draft_logprob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("traced", [1, 3, 50])
def test_prompt_tokens_are_scored_given_those_before_them(
    traced: int, scripted: MakeDrafter
) -> None:
    requests = [request(0, traced=traced), request(1), request(2, traced=2)]
    rows = decoded(scripted(oracle), requests)

    assert rows[1].trace is None
    for row, wanted in ((rows[0], traced), (rows[2], 2)):
        prompt = row.request.prompt_ids
        scores = [float(s[t]) for s, t in zip(plain_log_probs(prompt), prompt[1:], strict=False)]
        assert row.trace is not None
        assert row.trace.prompt_logprobs == pytest.approx(scores[-wanted:], abs=1e-4)


def test_a_prompt_of_one_token_has_nothing_to_score(scripted: MakeDrafter) -> None:
    (row,) = decoded(scripted(oracle), [DecodingRequest((5,), SamplingParams(max_tokens=2), (), 4)])

    assert row.trace is not None
    assert row.trace.prompt_logprobs == []


@every_guess
def test_the_counters_of_each_row_add_up(guess: Any, scripted: MakeDrafter) -> None:
    for row in decoded(scripted(guess), [request(number) for number in range(4)]):
        found = row.stats
        assert found.num_tokens == len(row.token_ids)
        assert found.num_tokens == found.num_passes + found.num_accepted_tokens + 1
        assert found.num_accepted_tokens == sum(found.num_accepted_tokens_per_pos)
        expected = (found.num_tokens - 1) / found.num_passes
        assert found.mean_acceptance_length == pytest.approx(expected)
        assert found.num_drafts <= found.num_passes


def test_a_row_cut_inside_an_accepted_run_counts_what_it_emitted(scripted: MakeDrafter) -> None:
    asked = request(4)
    stop = truth(asked.prompt_ids)[3]
    assert stop not in truth(asked.prompt_ids)[:3]
    session = open_session(scripted(oracle), [request(4, stop_token_ids=(stop,))])
    (row,) = list(rounds(session))[-1].rows

    # Prefill gives one, and the pass accepts four of which three belong to the answer.
    assert row.token_ids == list(truth(asked.prompt_ids)[:4])
    assert row.finish_reason == "stop"
    assert len(row.logprobs) == 4
    assert (row.stats.num_passes, row.stats.num_accepted_tokens, row.stats.num_tokens) == (1, 3, 4)
    assert row.stats.num_accepted_tokens_per_pos == [1, 1, 1, 0]
    assert row.history.view().tolist() == [*asked.prompt_ids, *row.token_ids]
    assert session.cache.lengths == ()  # the row has left


def test_a_cut_row_leaves_the_others_untouched(scripted: MakeDrafter) -> None:
    cut = request(4)
    stop = truth(cut.prompt_ids)[2]
    session = open_session(
        scripted(oracle), [request(4, stop_token_ids=(stop,)), request(3), request(2)]
    )
    for _ in rounds(session):
        session.cache.check_integrity()

    assert [len(row.token_ids) for row in session.rows] == [3, 15, 11]
    for row in session.rows:
        assert tuple(row.token_ids) == truth(row.request.prompt_ids)[: len(row.token_ids)]


def test_the_end_of_the_context_ends_the_answer(scripted: MakeDrafter) -> None:
    prompt = tuple(4 + i for i in range(TARGET.max_context - 5))
    params = SamplingParams(max_tokens=50, ignore_eos=True)
    (row,) = decoded(scripted(oracle), [DecodingRequest(prompt, params)])

    assert (len(row.token_ids), row.finish_reason) == (5, "length")
    assert tuple(row.token_ids) == truth(prompt)[:5]


def test_a_draft_larger_than_its_budget_is_cut(scripted: MakeDrafter) -> None:
    seen: list[DraftBudget] = []

    def greedy_guess(
        prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget
    ) -> DraftTree:
        seen.append(budget)
        return DraftTree.chain(truth(prompt)[len(output) :][:9])

    (row,) = decoded(scripted(greedy_guess), [request(2)])

    assert seen[0] == CONFIG.budget()
    assert row.stats.num_accepted_tokens_per_pos[: CONFIG.max_depth] == [2, 2, 2, 2]
    assert len(row.stats.num_accepted_tokens_per_pos) == CONFIG.max_depth
    # A single token is left: there is no room for any draft.
    assert all(b.max_depth < len(row.token_ids) for b in seen)


def test_only_drafts_that_pay_are_verified(scripted: MakeDrafter) -> None:
    def sure(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        drafted = truth(prompt)[len(output) :][: budget.max_depth]
        return DraftTree.chain(drafted, [0.9, 0.8, 0.02, 0.01][: len(drafted)])

    drafted = {}
    for name, relative in {"free": (1.0, 1.0), "fair": (1.0, 3.5), "dear": (1.0, 99.0)}.items():
        costs = PassCosts((1, 8), relative)
        session = DecodingSession(TARGET, scripted(sure), TOKENIZER, [request(3)], CONFIG, costs)
        (row,) = list(rounds(session))[-1].rows
        assert tuple(row.token_ids) == truth(row.request.prompt_ids)[:15]
        stats = row.stats
        drafted[name] = stats.num_draft_tokens / stats.num_drafts if stats.num_drafts else 0

    assert drafted["free"] > 3
    assert 1 < drafted["fair"] <= 2
    assert drafted["dear"] == 0


def test_the_drafter_hears_of_every_token_once(scripted: MakeDrafter) -> None:
    drafter = scripted(half_oracle)
    rows = decoded(drafter, [request(number) for number in range(4)])

    assert drafter.sessions[0].outputs == [row.token_ids for row in rows]


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_a_session_can_be_closed_at_any_time_and_again(
    num_steps: int, scripted: MakeDrafter
) -> None:
    drafter = scripted(half_oracle)
    session = open_session(drafter, [request(4), request(3)])
    for _ in range(num_steps):
        session.step()
    session.close()
    session.close()

    assert session.finished
    assert drafter.sessions[0].num_closed >= 1
    session.cache.check_integrity()
    emitted = [len(row.request.prompt_ids) + len(row.token_ids) - 1 for row in session.rows]
    assert list(session.cache.lengths) == (emitted if num_steps else [])


def test_two_sessions_of_one_target_do_not_disturb_each_other(scripted: MakeDrafter) -> None:
    sessions = [open_session(scripted(oracle), [request(n), request(n + 1)]) for n in (2, 3)]
    while not all(session.finished for session in sessions):
        for session in sessions:
            if not session.finished:
                session.step()

    for session in sessions:
        for row in session.rows:
            assert tuple(row.token_ids) == truth(row.request.prompt_ids)[: len(row.token_ids)]


@pytest.mark.parametrize(
    ("prompts", "problem"),
    [
        ([], "there is no prompt"),
        ([()], "the prompt is empty"),
        ([(5,), ()], "the prompt is empty"),
        ([(5, 64)], "has the token 64, but tiny-2 has 64 tokens, 0 to 63"),
        ([(5,), (-1, 5)], "has the token -1"),
        ([(5,) * 64], "has 64 tokens; tiny-2 holds 64, answer included"),
        ([(5,), (5,) * 80], "has 80 tokens"),
    ],
)
def test_prompts_that_cannot_be_answered_are_refused(
    prompts: list[tuple[int, ...]], problem: str, scripted: MakeDrafter
) -> None:
    with pytest.raises(InputError, match=problem):
        open_session(scripted(oracle), [DecodingRequest(p, SamplingParams()) for p in prompts])


def test_a_round_after_the_last_adds_nothing(scripted: MakeDrafter) -> None:
    session = open_session(scripted(oracle), [request(2)])
    while not session.finished:
        session.step()

    assert session.step() == {}
    session.close()
    assert session.step() == {}


def test_the_longest_prompt_that_leaves_room_gets_one_token(scripted: MakeDrafter) -> None:
    (row,) = decoded(scripted(oracle), [DecodingRequest((5,) * 63, SamplingParams())])

    assert (len(row.token_ids), row.finish_reason) == (1, "length")


def test_times_are_counted_where_the_work_is(scripted: MakeDrafter) -> None:
    session = open_session(scripted(oracle), [request(2)])
    session.step()
    timings = session.timings
    assert (timings.draft_ms, timings.verify_ms) == (0.0, 0.0)
    assert timings.prefill_ms > 0
    prefill = timings.prefill_ms
    session.step()

    assert timings.prefill_ms == prefill
    assert timings.draft_ms >= 0
    assert timings.verify_ms > 0


def test_a_tree_below_the_root_is_packed_with_the_last_token(scripted: MakeDrafter) -> None:
    def branches(
        prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget
    ) -> DraftTree:
        right = truth(prompt)[len(output)]
        return DraftTree(((right + 1) % 64, right), (ROOT, ROOT))

    (row,) = decoded(scripted(branches), [request(1)])

    assert row.stats.num_accepted_tokens == row.stats.num_drafts > 0
