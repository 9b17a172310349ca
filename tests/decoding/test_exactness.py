"""The embedded target, greedy in fp32: our tokens against transformers' own `generate`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.models.embedded import resolve
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.loader import load_target
from specrag.models.tokenizer import Tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.embedded]

PER_CATEGORY = 10
MAX_TOKENS = 128
TIE = 1e-4
"""Where the two best logits are nearer than this, float32 arithmetic itself decides."""

CATEGORIES = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")


@dataclass(frozen=True)
class Model:
    target: HuggingFaceTarget
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Reference:
    prompt: list[int]
    answer: list[int]


@pytest.fixture(scope="module")
def model(embedded_target_path: Path) -> Model:
    source = resolve(str(embedded_target_path))
    target = load_target(source, "embedded", dtype="float32")
    assert isinstance(target, HuggingFaceTarget)
    return Model(target, Tokenizer.load(source))


@pytest.fixture(scope="module")
def references(model: Model) -> list[Reference]:
    return [_reference(model, prompt) for prompt in _spec_bench_prompts(model.tokenizer)]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("drafter", ["prompt_lookup", "suffix"])
def test_greedy_equals_transformers_generate(
    model: Model, references: list[Reference], drafter: str, batch_size: int
) -> None:
    generator = SpeculativeGenerator(model.target, model.tokenizer, drafter)
    params = SamplingParams(max_tokens=MAX_TOKENS)
    found: list[Generation] = []
    for start in range(0, len(references), batch_size):
        prompts = [reference.prompt for reference in references[start : start + batch_size]]
        found.extend(generator.generate_batch(prompts, params))
    differing = [
        f"prompt {number}: {_difference(model, reference, generation)}"
        for number, (reference, generation) in enumerate(zip(references, found, strict=True))
        if list(generation.token_ids) != reference.answer
    ]
    for line in differing:
        print(f"{drafter} x{batch_size}: {line}")
    real = [line for line in differing if not line.endswith("(tie)")]
    assert not real, real


@pytest.mark.parametrize("drafter", ["prompt_lookup", "suffix"])
def test_sampling_gives_the_same_tokens_with_and_without_speculation(
    model: Model, drafter: str
) -> None:
    prompts = _spec_bench_prompts(model.tokenizer)[::3]
    assert len(prompts) == 20
    plain = SpeculativeGenerator(model.target, model.tokenizer, "none")
    speculative = SpeculativeGenerator(model.target, model.tokenizer, drafter)
    for seed, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.8, top_p=0.95, seed=seed, max_tokens=48)
        expected = plain.generate_batch([prompt], params)[0]
        found = speculative.generate_batch([prompt], params)[0]
        assert found.token_ids == expected.token_ids, f"prompt {seed}"


def _reference(model: Model, prompt: list[int]) -> Reference:
    ids = torch.tensor([prompt])
    output = model.target.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MAX_TOKENS
    )
    return Reference(prompt, output[0, len(prompt) :].tolist())


def _difference(model: Model, reference: Reference, generation: Generation) -> str:
    """Where two answers part, and how near the two best tokens are there."""
    ours = list(generation.token_ids)
    pairs = enumerate(zip(reference.answer, ours, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(reference.answer)))
    ids = torch.tensor([reference.prompt + reference.answer[:at]])
    with torch.inference_mode():
        top = model.target.model(ids).logits[0, -1].float().topk(2).values
    margin = float(top[0] - top[1])
    return f"token {at}, top-2 margin {margin:.2e}{' (tie)' if margin < TIE else ''}"


def _spec_bench_prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """Ten first turns of each Spec-Bench category."""
    data = Path(os.environ.get("SPECRAG_DATA", "../shared/data"))
    path = data / "spec_bench" / "question.jsonl"
    if not path.is_file():
        pytest.skip(f"no Spec-Bench questions at {path}; SPECRAG_DATA names another folder")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    # MT-bench rows carry its own eight sub-categories as their category.
    named = [(r["category"] if r["category"] in CATEGORIES else "mt_bench", r) for r in rows]
    chosen = [
        row
        for category in CATEGORIES
        for row in [row for name, row in named if name == category][:PER_CATEGORY]
    ]
    assert len(chosen) == PER_CATEGORY * len(CATEGORIES)
    return [tokenizer.encode_chat([{"role": "user", "content": row["turns"][0]}]) for row in chosen]
