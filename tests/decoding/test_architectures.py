"""Every drafter on every architecture says what plain decoding says, alone and in batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.architectures import EVERY, PLAIN, VOCAB, target_of

TOKENIZER = tiny_tokenizer(VOCAB)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.2},
}
IN_EACH_RUN = ("llama", "qwen2", "qwen3", "mistral-window", "gemma2", "gemma3_text", "phi3") + (
    *("gpt2", "gpt_neox", "olmo2", "granite", "smollm3", "mixtral", "qwen3_moe"),
    *("deepseek_v3", "mamba", "falcon_h1"),
)
TREES = SpeculationConfig(num_speculative_tokens=9, max_depth=5, branching=3)
CHAINS = SpeculationConfig(num_speculative_tokens=5, branching=1)


def draft_model(drafter: Drafter | None = None) -> Drafter:
    return DraftModelDrafter(tiny_target(seed=3, vocab_size=VOCAB), TOKENIZER, drafter=drafter)


DRAFTERS: dict[str, tuple[Callable[[], Drafter], SpeculationConfig]] = {
    "suffix": (lambda: named_drafter("suffix"), TREES),
    "prompt_lookup": (lambda: named_drafter("prompt_lookup"), CHAINS),
    "suffix+prompt_lookup": (lambda: named_drafter("suffix+prompt_lookup"), TREES),
    "selector": (lambda: named_drafter("selector"), TREES),
    "draft model, chain": (draft_model, CHAINS),
    "draft model, tree": (draft_model, TREES),
    "cascade": (lambda: draft_model(named_drafter("suffix")), TREES),
}

every_architecture = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_EACH_RUN else pytest.mark.slow)
        for name in EVERY
        if name != "tiny"
    ],
)


def prompt(number: int) -> list[int]:
    """Of different lengths, and repetitive, so that there is something to copy."""
    rng = random.Random(number)
    words = [rng.randrange(3, VOCAB) for _ in range(3 + number)]
    return words * 3


def answers(
    generator: SpeculativeGenerator, mode: str, numbers: Sequence[int]
) -> list[tuple[int, ...]]:
    params = SamplingParams(max_tokens=14, seed=5, ignore_eos=True, **MODES[mode])
    found = generator.generate_batch([prompt(number) for number in numbers], params)
    return [generation.token_ids for generation in found]


@cache
def plain(name: str, mode: str) -> list[tuple[int, ...]]:
    generator = SpeculativeGenerator(target_of(name), TOKENIZER, "none")
    return [answers(generator, mode, [number])[0] for number in range(3)]


@every_architecture
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_tokens_are_those_of_plain_decoding(name: str, drafter: str) -> None:
    make, config = DRAFTERS[drafter]
    generator = SpeculativeGenerator(target_of(name), TOKENIZER, make(), config)
    for mode in MODES:
        assert answers(generator, mode, range(3)) == plain(name, mode)
        assert answers(generator, mode, [1]) == plain(name, mode)[1:2]


@every_architecture
def test_what_cannot_be_rolled_back_is_known_before_the_first_token(name: str) -> None:
    target = target_of(name)
    generator = SpeculativeGenerator(target, TOKENIZER, "suffix", TREES)
    params = SamplingParams(max_tokens=14, ignore_eos=True)
    stats = [made.stats for made in generator.generate_batch([prompt(0), prompt(2)], params)]

    assert bool(target.no_speculation) == (name in PLAIN)
    assert any(found.num_drafts for found in stats) == (name not in PLAIN)
