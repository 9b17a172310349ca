"""Speculative decoding says what plain decoding says: token for token, and in distribution."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.generator import Generation, SpeculativeGenerator, result_of
from specrag.decoding.sampling import SamplingParams, TokenSampler
from specrag.decoding.tree import ROOT, DraftTree, pack
from specrag.decoding.verify import Verification, verify
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.oracles.fit import joint_law, num_cells, p_value

VOCAB, NUM_PROMPTS, BATCH = 16, 200, 4
TOKENIZER = tiny_tokenizer(VOCAB)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy with penalty": {"repetition_penalty": 1.4},
    "sampled": {"temperature": 1.0},
    "hot": {"temperature": 1.7, "top_k": 11},
    "truncated": {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "min_p": 0.02},
    "penalised": {"temperature": 1.1, "top_p": 0.95, "repetition_penalty": 1.3},
}
CONFIG = SpeculationConfig(num_speculative_tokens=9, max_depth=5, branching=4)
MakeDrafter = Callable[..., Drafter]


@cache
def target() -> HuggingFaceTarget:
    # Double precision: the shape of a pass then never changes a choice, on any machine.
    made = tiny_target(seed=1, vocab_size=VOCAB, peakedness=2.0)
    made.model.double()
    return made


def prompt(number: int) -> tuple[int, ...]:
    rng = random.Random(number)
    return tuple(rng.randrange(1, VOCAB) for _ in range(rng.randint(1, 9)))


def params(mode: str, number: int) -> SamplingParams:
    return SamplingParams(max_tokens=5 + number % 5, seed=number, **MODES[mode])


def decode(drafter: Drafter | str, mode: str, numbers: Sequence[int]) -> list[Generation]:
    """Answers these prompts as one batch, each with a seed of its own."""
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, CONFIG)
    session = generator.open([generator.request(prompt(n), params(mode, n)) for n in numbers])
    while not session.finished:
        session.step()
    return [result_of(row, session.timings) for row in session.rows]


@cache
def plain(mode: str) -> list[Generation]:
    return decode("none", mode, range(NUM_PROMPTS))


def random_tree(rng: random.Random, budget: DraftBudget) -> DraftTree:
    """Any shape and any tokens, more than the budget allows at times."""
    edges: dict[tuple[int, int], None] = {}
    for _ in range(rng.randint(0, 12)):
        edges.setdefault((rng.randrange(ROOT, len(edges)), rng.randrange(VOCAB)))
    return DraftTree(tuple(token for _, token in edges), tuple(parent for parent, _ in edges))


def half_true(rng: random.Random, rest: Sequence[int], budget: DraftBudget) -> DraftTree:
    """The truth, astray at some depth, somewhere among paths that are wrong from some depth."""
    paths = []
    for _ in range(3):
        right = rng.randint(0, budget.max_depth)
        paths.append([*rest[:right], *(rng.randrange(VOCAB) for _ in range(rng.randint(0, 2)))])
    return DraftTree.from_paths(paths)


def guess_of(mode: str) -> Callable[[tuple[int, ...], tuple[int, ...], DraftBudget], DraftTree]:
    """A drafter that lies, half lies or tells the truth, by turns, and knows every answer."""
    answers: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for number, answer in enumerate(plain(mode)):
        answers.setdefault(prompt(number), []).append(answer.token_ids)

    def guess(start: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        rng = random.Random(f"{start} {output}")
        rest = [a[len(output) :] for a in answers[start] if a[: len(output)] == output][0]
        return [
            lambda: random_tree(rng, budget),
            lambda: half_true(rng, rest, budget),
            lambda: DraftTree.chain(rest[: budget.max_depth]),
        ][rng.randrange(3)]()

    return guess


def assert_same(found: Sequence[Generation], mode: str, numbers: Sequence[int]) -> None:
    for generation, number in zip(found, numbers, strict=True):
        expected = plain(mode)[number]
        assert generation.token_ids == expected.token_ids
        assert generation.text == expected.text
        assert generation.finish_reason == expected.finish_reason
        assert generation.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def assert_speculated(found: Sequence[Generation]) -> None:
    """Else nothing was shown: both accepted and rejected drafts must have occurred."""
    accepted = sum(generation.stats.num_accepted_tokens for generation in found)
    tokens = sum(len(generation.token_ids) for generation in found)
    assert 0.25 < accepted / tokens < 0.9
    assert accepted < sum(generation.stats.num_draft_tokens for generation in found)


@pytest.mark.parametrize("mode", MODES)
def test_every_answer_is_that_of_plain_decoding_in_ragged_batches(
    mode: str, scripted: MakeDrafter
) -> None:
    drafter = scripted(guess_of(mode))
    found: list[Generation] = []
    for start in range(0, NUM_PROMPTS, BATCH):
        found += decode(drafter, mode, range(start, start + BATCH))

    assert_same(found, mode, range(NUM_PROMPTS))
    assert_speculated(found)
    assert {generation.finish_reason for generation in found} == {"stop", "length"}


@pytest.mark.parametrize("mode", MODES)
def test_every_answer_is_that_of_plain_decoding_alone(mode: str, scripted: MakeDrafter) -> None:
    drafter, numbers = scripted(guess_of(mode)), range(0, NUM_PROMPTS, 5)
    found = [decode(drafter, mode, [number])[0] for number in numbers]

    assert_same(found, mode, numbers)
    assert_speculated(found)


@pytest.mark.parametrize("mode", MODES)
def test_the_truth_is_always_accepted(mode: str, scripted: MakeDrafter) -> None:
    answers = {prompt(number): plain(mode)[number].token_ids for number in range(40)}
    drafter = scripted(
        lambda start, output, budget: DraftTree.chain(
            answers[start][len(output) : len(output) + budget.max_depth]
        )
    )
    numbers = [n for n in range(40) if answers[prompt(n)] == plain(mode)[n].token_ids]
    found = decode(drafter, mode, numbers)

    assert_same(found, mode, numbers)
    for generation in found:
        assert generation.stats.num_accepted_tokens >= generation.stats.num_draft_tokens - 1
        # Five accepted and a bonus token a pass, after the one that prefill gives.
        assert generation.stats.num_passes == -(-(len(generation.token_ids) - 1) // 6)


# The law of the next two tokens, by enumeration and by drawing.

START = (3, 5, 7, 9)
FEW, MANY = 5_000, 50_000
LAW = SamplingParams(temperature=1.2)
Drafts = Callable[[tuple[int, ...]], DraftTree]
Verify = Callable[[DraftTree, Callable[[int, tuple[int, ...]], int]], Verification]


@torch.inference_mode()
def exact_law() -> dict[tuple[int, ...], float]:
    """The law by definition: the plain model, softmax, and the product over two tokens."""

    def probs(answer: tuple[int, ...]) -> list[float]:
        logits = target().model(torch.tensor([START + answer])).logits[0, -1]
        found: list[float] = torch.softmax(logits / LAW.temperature, -1).tolist()
        return found

    return joint_law(probs, 2)


class CachedSampler(TokenSampler):
    """Chooses as ever, but computes the scores after a text once."""

    def __init__(self) -> None:
        super().__init__(LAW)
        self._scores: dict[tuple[int, ...], torch.Tensor] = {}
        self._text: tuple[int, ...] = ()

    def choose_after(self, text: tuple[int, ...], logits: torch.Tensor) -> int:
        self._text = text
        return self.choose(logits, logits, len(text))

    def process(self, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        if self._text not in self._scores:
            self._scores[self._text] = super().process(logits, torch.tensor(self._text))
        return self._scores[self._text]


class CachedDecoder:
    """Decodes with a real target, whose passes over the same text are made once."""

    def __init__(self, drafts: Drafts, check: Verify) -> None:
        self._drafts = drafts
        self._verify = check
        self._sampler = CachedSampler()
        self._passes: dict[tuple[int, ...], tuple[DraftTree, list[torch.Tensor]]] = {}

    def draw(self, seed: int) -> tuple[int, ...]:
        """Returns the next two tokens, from one pass or two."""
        self._sampler.seed = seed
        text: tuple[int, ...] = START
        while len(text) < len(START) + 2:
            text += self._pass(text)
        return text[len(START) :][:2]

    def _pass(self, text: tuple[int, ...]) -> tuple[int, ...]:
        if text not in self._passes:
            tree, cache = self._drafts(text), target().new_cache(1)
            target().prefill([text[:-1]], cache)
            logits = target().forward(pack([text[-1]], [tree]), cache).logits[0]
            self._passes[text] = tree, list(logits)
        tree, rows = self._passes[text]

        def choose(node: int, accepted: tuple[int, ...]) -> int:
            return self._sampler.choose_after(text + accepted, rows[node + 1])

        return self._verify(tree, choose).token_ids


def chain_draft(text: tuple[int, ...]) -> DraftTree:
    """The likeliest tokens one after the other, so that the draft depends on the target."""
    drafted: list[int] = []
    for _ in range(2):
        with torch.inference_mode():
            logits = target().model(torch.tensor([[*text, *drafted]])).logits[0, -1]
        drafted.append(int(logits.argmax()))
    return DraftTree.chain(drafted)


def tree_draft(text: tuple[int, ...]) -> DraftTree:
    (first,) = chain_draft(text).token_ids[:1]
    others = [token for token in range(VOCAB) if token != first][:3]
    return DraftTree.from_paths([[first, 2], [others[0], 4], [first, 6], [others[1]], [first, 9]])


def first_child_always(
    tree: DraftTree, choose: Callable[[int, tuple[int, ...]], int]
) -> Verification:
    """A wrong verification: a draft is accepted unseen where none would have been."""
    found = verify(tree, choose)
    if found.path or not len(tree):
        return found
    token = tree.token_ids[0]
    return Verification((0,), (token,), choose(0, (token,)))


def fit(drafts: Drafts, check: Verify, draws: int) -> float:
    """How well the drawn pairs fit the exact law."""
    decoder, law = CachedDecoder(drafts, check), exact_law()
    assert num_cells(law, draws) > 30
    return p_value([decoder.draw(seed) for seed in range(draws)], law)


@pytest.mark.parametrize("drafts", [chain_draft, tree_draft])
def test_two_tokens_follow_the_exact_law_of_the_target(drafts: Drafts) -> None:
    assert fit(drafts, verify, FEW) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [chain_draft, tree_draft])
def test_many_pairs_follow_the_exact_law_of_the_target(drafts: Drafts) -> None:
    assert fit(drafts, verify, MANY) > 1e-3


def test_the_check_of_the_law_finds_a_biased_verification() -> None:
    assert fit(chain_draft, first_child_always, FEW) < 1e-9
