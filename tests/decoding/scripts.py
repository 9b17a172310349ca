"""A small world for tests of the loop: a target, requests, what plain decoding says, drafters."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession, SilentSession
from specrag.decoding.row import DecodingRequest
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.decoding.tree import ROOT, DraftTree
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.prefix_cache import PrefixCache
from specrag.models.tiny import tiny_target, tiny_tokenizer

VOCAB = 16
TOKENIZER = tiny_tokenizer(VOCAB)
CONFIG = SpeculationConfig(num_speculative_tokens=6, max_depth=4, branching=3)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.1},
    "penalised": {
        "temperature": 1.0,
        "top_p": 0.95,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.4,
    },
    "biased": {"frequency_penalty": 1.5, "min_tokens": 4, "logit_bias": {5: 1.5, 7: -2.0}},
}

Guess = Callable[[tuple[int, ...], tuple[int, ...], DraftBudget], DraftTree]
"""Prompt, output so far and budget to a draft."""


class ScriptedSession(DraftSession):
    """Keeps what each row was told, and counts how often it was closed."""

    def __init__(self, guess: Guess, contexts: Sequence[DraftContext]) -> None:
        self._guess = guess
        self._prompts = [context.prompt_ids for context in contexts]
        self.outputs: list[list[int]] = [[] for _ in contexts]
        self.features: list[list[Mapping[int, torch.Tensor] | None]] = [[] for _ in contexts]
        self.num_closed = 0

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        return self.propose_after(rows, budget, [()] * len(rows))

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        return [
            self._guess(self._prompts[row], (*self.outputs[row], *assumed), most)
            for row, most, assumed in zip(rows, budget, ahead, strict=True)
        ]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self.outputs[row].extend(token_ids)
        self.features[row].append(features)

    def join(self, context: DraftContext) -> int:
        self._prompts.append(context.prompt_ids)
        self.outputs.append([])
        self.features.append([])
        return len(self.outputs) - 1

    def close(self) -> None:
        self.num_closed += 1


class ScriptedDrafter(Drafter):
    """Asks a function; keeps the sessions it opened for the test to look at."""

    name = "scripted"

    def __init__(self, guess: Guess, feature_layers: tuple[int, ...] = ()) -> None:
        self._guess = guess
        self.feature_layers = feature_layers
        self.sessions: list[ScriptedSession] = []

    def open(self, contexts: Sequence[DraftContext]) -> ScriptedSession:
        self.sessions.append(ScriptedSession(self._guess, contexts))
        return self.sessions[-1]


class SilentDrafter(Drafter):
    """Drafts nothing: plain decoding."""

    name = "silent"

    def open(self, contexts: Sequence[DraftContext]) -> SilentSession:
        return SilentSession(len(contexts))


@cache
def target() -> HuggingFaceTarget:
    """In double precision: the shape of a pass then never changes a choice, on any machine."""
    made = tiny_target(seed=1, vocab_size=VOCAB, peakedness=2.0)
    made.model.double()
    return made


def request(
    number: int, mode: str = "greedy", traced: int = 0, processors: Any = (), **options: Any
) -> DecodingRequest:
    """A prompt of its own and a seed of its own for each number."""
    rng = random.Random(number)
    prompt = (*divmod(number, VOCAB), *(rng.randrange(1, VOCAB) for _ in range(rng.randint(0, 9))))
    params = SamplingParams(
        **{"max_tokens": 5 + number % 9, "seed": number} | MODES[mode] | options
    )
    return DecodingRequest(prompt, params, num_traced=traced, processors=tuple(processors))


def open_session(
    drafter: Drafter,
    requests: Sequence[DecodingRequest],
    config: SpeculationConfig = CONFIG,
    costs: PassCosts | None = None,
    prefix_cache: PrefixCache | None = None,
) -> DecodingSession:
    return DecodingSession(target(), drafter, TOKENIZER, requests, config, costs, prefix_cache)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a row says in the end."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    logprobs: tuple[float, ...] = dataclasses.field(compare=False)


def answers(session: DecodingSession) -> list[Answer]:
    """What the rows have said so far."""
    return [
        Answer(tuple(row.token_ids), row.text, row.finish_reason, tuple(row.logprobs))
        for row in session.rows
    ]


def finish(session: DecodingSession) -> list[Answer]:
    """Decodes to the end."""
    while not session.finished:
        session.step()
    return answers(session)


@cache
def alone(asked: DecodingRequest) -> Answer:
    """What plain decoding says to a request that has the batch to itself."""
    return finish(open_session(SilentDrafter(), [asked]))[0]


def random_tree(rng: random.Random) -> DraftTree:
    """Any shape and any tokens, more than a budget allows at times."""
    edges: dict[tuple[int, int], None] = {}
    for _ in range(rng.randint(0, 9)):
        edges.setdefault((rng.randrange(ROOT, len(edges)), rng.randrange(VOCAB)))
    return DraftTree(tuple(token for _, token in edges), tuple(parent for parent, _ in edges))


def half_true(rng: random.Random, rest: Sequence[int]) -> DraftTree:
    """The truth, astray at some depth, among paths that are wrong from some depth on."""
    paths = []
    for _ in range(3):
        right = rng.randint(0, 4)
        paths.append([*rest[:right], *(rng.randrange(VOCAB) for _ in range(rng.randint(0, 2)))])
    return DraftTree.from_paths(paths)


def knowing(requests: Sequence[DecodingRequest]) -> Guess:
    """A drafter that knows every answer, and lies, half lies or tells the truth, by turns."""
    known = {asked.prompt_ids: alone(asked).token_ids for asked in requests}
    assert len(known) == len({asked.prompt_ids for asked in requests})

    def guess(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        rng = random.Random(f"{prompt} {output}")
        rest = known[prompt][len(output) :]
        return [
            lambda: random_tree(rng),
            lambda: half_true(rng, rest),
            lambda: DraftTree.chain(rest[: budget.max_depth]),
        ][rng.randrange(3)]()

    return guess


def truthful(requests: Sequence[DecodingRequest]) -> Guess:
    """A drafter that knows every answer and tells it."""
    known = {asked.prompt_ids: alone(asked).token_ids for asked in requests}

    def guess(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        most = min(budget.max_depth, budget.num_speculative_tokens)
        return DraftTree.chain(known[prompt][len(output) :][:most])

    return guess


def check_between_rounds(session: DecodingSession, drafts: ScriptedSession | None = None) -> None:
    """Asserts what holds between any two rounds.

    Args:
        session: A session with no round running.
        drafts: Of a drafter that never failed.
    """
    running = [row for row in session.rows if row.token_ids and not row.finish_reason]
    expected = tuple(len(row.request.prompt_ids) + len(row.token_ids) - 1 for row in running)
    session.cache.check_integrity()
    assert not session.finished or not running
    # A cache whose last row has ended is replaced when the next one comes.
    assert session.cache.lengths == expected
    for index, row in enumerate(session.rows):
        assert row.history.view().tolist() == [*row.request.prompt_ids, *row.token_ids]
        assert len(row.token_ids) == len(row.logprobs) == row.stats.num_tokens
        if drafts is not None:
            assert drafts.outputs[index] == row.token_ids
