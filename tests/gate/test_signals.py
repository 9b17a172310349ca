"""Signals against figures computed slowly from the logits of one plain forward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.row import Row
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.trace import TokenRecord, VerificationTrace
from specrag.decoding.tree import DraftTree
from specrag.gate.signals import LookupSignals, measure
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.retrieval.document import Passage, ScoredPassage

WIDTH = 3  # drafted tokens a pass
NUM_TOKENS = 20
PROMPT = (3, 20, 21, 22, 30, 31, 2, 9)
NUM_TRACED, NUM_QUESTION = 6, 4  # the question is PROMPT[2:6]
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, temperature=1.5, seed=7)


class ScriptedDrafter(Drafter):
    """Guesses the token of each place of the answer from a list."""

    name = "scripted"

    def __init__(self, script: Sequence[int]) -> None:
        self.script = tuple(script)

    def open(self, contexts: Sequence[DraftContext]) -> DraftSession:
        return _Session(self.script)


class _Session(DraftSession):
    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self._place = 0

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        return [DraftTree.chain(self._script[self._place : self._place + WIDTH])]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self._place += len(token_ids)


@dataclass(frozen=True)
class Slow:
    """The target's distribution at each place of the answer and before each prompt token."""

    prompt_logprobs: list[float]
    log_probs: torch.Tensor
    emitted: list[int]


@pytest.fixture(scope="module")
def target() -> HuggingFaceTarget:
    return tiny_target(3, peakedness=2.0)


def decoded(target: HuggingFaceTarget, script: Sequence[int], params: SamplingParams) -> Row:
    generator = SpeculativeGenerator(
        target, tiny_tokenizer(), ScriptedDrafter(script), SpeculationConfig(WIDTH)
    )
    session = generator.open([generator.request(PROMPT, params, num_traced=NUM_TRACED)])
    while not session.finished:
        session.step()
    return session.rows[0]


def slowly(target: HuggingFaceTarget, emitted: Sequence[int]) -> Slow:
    tokens = [*PROMPT, *emitted]
    with torch.no_grad():
        logits = target.model(input_ids=torch.tensor([tokens])).logits[0].double()
    log_probs = torch.log_softmax(logits, -1)
    prompt = [float(log_probs[at - 1, tokens[at]]) for at in range(len(PROMPT))][-NUM_TRACED:]
    return Slow(prompt, log_probs[len(PROMPT) - 1 : -1], list(emitted))


def drafts_of(script: Sequence[int], emitted: Sequence[int]) -> list[int | None]:
    """The token drafted for each place: none for the first, none behind a draft that held."""
    drafts: list[int | None] = [None]
    while len(drafts) < len(emitted):
        room = len(emitted) - len(drafts)
        for guess in script[len(drafts) : len(drafts) + min(WIDTH, room - 1)]:
            drafts.append(guess)
            if guess != emitted[len(drafts) - 1]:
                break
        else:
            drafts.append(None)
    return drafts


def script_of(kind: str, emitted: Sequence[int]) -> list[int]:
    wrong = [(token + 1) % 64 for token in emitted]
    match kind:
        case "right":
            return list(emitted)
        case "wrong":
            return wrong
        case "mixed":
            return [
                w if i % 4 == 2 else e for i, (e, w) in enumerate(zip(emitted, wrong, strict=True))
            ]
    return []


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["right", "wrong", "mixed", "nothing"])
def test_the_signals_are_those_of_a_slow_computation(
    target: HuggingFaceTarget, kind: str, params: SamplingParams
) -> None:
    script = script_of(kind, decoded(target, [], params).token_ids)
    row = decoded(target, script, params)
    slow = slowly(target, row.token_ids)
    drafts = drafts_of(script, row.token_ids)
    assert row.trace is not None
    signals = measure(row.trace, num_question=NUM_QUESTION, term_coverage=0.25)

    places = range(len(slow.emitted))
    own = [float(slow.log_probs[at, slow.emitted[at]]) for at in places]
    drafted = [
        own[at] if (guess := drafts[at]) is None else float(slow.log_probs[at, guess])
        for at in places
    ]
    probs = slow.log_probs.exp()
    best = probs.sort(-1, descending=True).values
    guessed = [(guess, slow.emitted[at]) for at, guess in enumerate(drafts) if guess is not None]
    expected = {
        "cross_model_perplexity": math.exp(-np.mean(np.maximum(drafted, -20.0))),
        "perplexity": math.exp(-np.mean(own)),
        "margin": float((best[:, 0] - best[:, 1]).mean()),
        "overlap": float(np.mean(np.exp(np.maximum(drafted, -20.0)))),
        "entropy": float(-(probs * slow.log_probs).sum(-1).mean()),
        "acceptance": float(np.mean([g == e for g, e in guessed])) if guessed else 1.0,
        "low_probability": float(np.percentile(np.exp(own), 10, method="lower")),
        "first_probability": math.exp(own[0]),
        "question_perplexity": math.exp(-np.mean(slow.prompt_logprobs[:NUM_QUESTION])),
        "num_tokens": NUM_TOKENS,
        "term_coverage": 0.25,
    }
    assert signals.to_dict() == pytest.approx(expected, rel=1e-3)


def test_nothing_drafted_makes_the_cross_model_figures_the_target_s_own(
    target: HuggingFaceTarget,
) -> None:
    row = decoded(target, [], GREEDY)
    assert row.trace is not None
    signals = measure(row.trace, num_question=NUM_QUESTION)

    assert signals.cross_model_perplexity == signals.perplexity
    assert signals.acceptance == 1.0
    assert signals.overlap == pytest.approx(np.mean(np.exp(row.logprobs)), rel=1e-5)


def test_nothing_emitted_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one verified token"):
        measure(VerificationTrace(), num_question=1)


def test_a_question_without_scored_tokens_has_a_neutral_perplexity() -> None:
    trace = VerificationTrace(tokens=[TokenRecord(1, -0.5, 1.0, 0.2)])
    assert measure(trace, num_question=3).question_perplexity == 1.0


@pytest.mark.parametrize("impossible", [-21.0, -1000.0, -math.inf])
def test_an_impossible_draft_is_floored(impossible: float) -> None:
    records = [
        TokenRecord(1, -1.0, 1.0, 0.2, impossible, 9),
        TokenRecord(2, -1.0, 1.0, 0.2, -1.0, 2),
    ]
    signals = measure(VerificationTrace(tokens=records), num_question=0)

    assert signals.cross_model_perplexity == pytest.approx(math.exp(10.5))
    assert signals.perplexity == pytest.approx(math.e)
    assert signals.acceptance == 0.5


def test_a_draft_as_probable_as_the_emitted_token_has_not_been_accepted() -> None:
    records = [TokenRecord(1, -1.0, 1.0, 0.0, -1.0, 9), TokenRecord(2, -1.0, 1.0, 0.0, -1.0, 2)]
    signals = measure(VerificationTrace(tokens=records), num_question=0)

    assert signals.acceptance == 0.5


def found(*scores: float) -> list[ScoredPassage]:
    return [ScoredPassage(Passage(i, "d", "text", 0, 4), score) for i, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "top_score", "gap"),
    [
        ((), -1.0, 0.0),
        ((0.7,), 0.7, 0.0),
        ((0.7, 0.5), 0.7, 0.2),
        ((0.7, 0.5, 0.1), 0.7, 0.4),
        ((-0.2, -0.4), -0.2, 0.2),
    ],
)
def test_lookup_signals(scores: tuple[float, ...], top_score: float, gap: float) -> None:
    signals = LookupSignals.of(found(*scores))
    assert signals.to_dict() == pytest.approx({"top_score": top_score, "gap": gap})


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_the_gap_of_ranked_scores_is_never_negative(scores: list[float]) -> None:
    signals = LookupSignals.of(found(*sorted(scores, reverse=True)))
    assert signals.top_score == max(scores)
    assert signals.gap >= -1e-12


def test_only_the_first_tokens_count_when_a_round_brought_more() -> None:
    records = [TokenRecord(1, -0.5, 0.1, 0.9), TokenRecord(2, -3.0, 2.0, 0.1)]
    signals = measure(VerificationTrace(tokens=records), num_question=0, num_tokens=1)
    assert signals.num_tokens == 1
    assert signals.perplexity == pytest.approx(math.exp(0.5))
    assert signals == measure(VerificationTrace(tokens=records[:1]), num_question=0)
