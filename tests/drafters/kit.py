"""What tests of drafters with a model share: tiny models more or less alike, and whole answers."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.generator import Generation, SpeculativeGenerator, result_of
from specrag.decoding.sampling import SamplingParams, TokenSampler
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.kv_cache import KVCache
from specrag.models.target import ModelOutput, TreePass
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.models.tokenizer import Tokenizer

VOCAB = 80
TOKENIZER = tiny_tokenizer(VOCAB)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "penalised": {"repetition_penalty": 1.4},
    "sampled": {"temperature": 1.0},
    "truncated": {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "repetition_penalty": 1.2},
}


def model(
    seed: int = 1, *, near: float = 0.0, vocab: int = VOCAB, context: int = 512
) -> HuggingFaceTarget:
    """A tiny model; ``near`` shakes its weights by that share, so that it agrees at times.

    Double precision: the shape of a pass then never changes a choice, on any machine.
    """
    made = tiny_target(seed=seed, vocab_size=vocab, peakedness=2.0, max_context=context)
    made.model.double()
    if near:
        noise = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for weight in made.model.parameters():
                shake = torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
                weight.add_(near * weight.std() * shake)
        made.name = f"near-{made.name}"
    return made


@cache
def target() -> HuggingFaceTarget:
    return model()


@cache
def near_model() -> HuggingFaceTarget:
    return model(near=0.1)


def prompt(number: int, longest: int = 9) -> tuple[int, ...]:
    rng = random.Random(number)
    return tuple(rng.randrange(4, VOCAB) for _ in range(rng.randint(1, longest)))


def params(mode: str, number: int, **options: Any) -> SamplingParams:
    return SamplingParams(
        **{"max_tokens": 9 + 4 * (number % 3), "seed": number, **MODES[mode], **options}
    )


def context(
    text: Sequence[int], mode: str = "greedy", seed: int = 0, *, rejection: bool = False
) -> DraftContext:
    sampler = TokenSampler(params(mode, seed))
    return DraftContext(tuple(text), sampler=sampler, rejection=rejection)


def decode(
    drafter: Drafter | str,
    requests: Sequence[SamplingParams],
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    nodes: int = 6,
    depth: int = 4,
    branching: int = 1,
) -> list[Generation]:
    """Answers these requests as one batch, speculating in every round."""
    config = SpeculationConfig(
        num_speculative_tokens=nodes,
        max_depth=depth,
        branching=branching,
        policy="fixed",
        min_acceptance=0.0,
    )
    if isinstance(drafter, Drafter):
        drafter.bind(target(), TOKENIZER)
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, config)
    texts = prompts or [prompt(number) for number in range(len(requests))]
    session = generator.open(
        [generator.request(text, wish) for text, wish in zip(texts, requests, strict=True)]
    )
    try:
        while not session.finished:
            session.step()
    finally:
        session.close()
    return [result_of(row, session.timings) for row in session.rows]


class Watched(HuggingFaceTarget):
    """Notes what it is fed, and fails when told to."""

    def __init__(self, model: HuggingFaceTarget) -> None:
        super().__init__(model.model, model.name)
        self.max_context = model.max_context
        self.passes: list[tuple[int, int]] = []  # rows, nodes
        self.furthest = 0
        self.fails_at: int | None = None

    def forward(
        self, tree_pass: TreePass, cache: KVCache, feature_layers: Sequence[int] = ()
    ) -> ModelOutput:
        rows, nodes = tree_pass.token_ids.shape
        self._note(rows, nodes)
        ends = torch.tensor(cache.lengths).unsqueeze(1) + tree_pass.depths
        self.furthest = max(self.furthest, int(ends.max()) + 1)
        output = super().forward(tree_pass, cache, feature_layers)
        self._fail()
        return output

    def prefill(
        self,
        prompts: Sequence[Sequence[int]],
        cache: KVCache,
        num_logits: int = 1,
        feature_layers: Sequence[int] = (),
    ) -> ModelOutput:
        self._note(len(prompts), max(map(len, prompts)))
        output = super().prefill(prompts, cache, num_logits, feature_layers)
        self.furthest = max(self.furthest, *cache.lengths)
        self._fail()
        return output

    def _note(self, rows: int, nodes: int) -> None:
        self.passes.append((rows, nodes))

    def _fail(self) -> None:
        if self.fails_at is not None and len(self.passes) > self.fails_at:
            self.fails_at = None
            raise RuntimeError("the draft model failed")


def grid(
    rows: Iterable[Any], columns: Iterable[Any], quick: Collection[tuple[Any, Any]]
) -> list[Any]:
    """All pairs as parameters of a test; those that are not quick are slow."""
    pairs = list(product(rows, columns))
    assert set(quick) <= set(pairs)
    return [pytest.param(*pair, marks=() if pair in quick else pytest.mark.slow) for pair in pairs]


@cache
def merging_tokenizer() -> Tokenizer:
    """A byte-level tokenizer with merges, its numbers unlike those of the tiny one."""
    backend = RustTokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>", "<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "the sea is deep and the sky is high, and the moles dig in the dark soil of the sea"
    backend.train_from_iterator([text] * 3, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<end>", additional_special_tokens=["<s>"]
    )
    return Tokenizer(fast)


@cache
def merging_model() -> HuggingFaceTarget:
    return model(seed=5, vocab=merging_tokenizer().vocab_size)
