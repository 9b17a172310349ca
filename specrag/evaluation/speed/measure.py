"""Speed of drafters against plain decoding of the same engine, interleaved in one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specrag.decoding.costs import costs_of
from specrag.decoding.drafter import named_drafter
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.stats import DecodingStats
from specrag.evaluation.machine import machine
from specrag.evaluation.prompts import BenchPrompt

PLAIN = "none"


@dataclass(slots=True)
class Measurement:
    """What one drafter did over the prompts of one category.

    Attributes:
        drafter: Its name; ``none`` is plain decoding.
        category: Group of prompts.
        stats: Counters of all answers.
        decode_ms: Time after the first token, one figure a prompt.
        total_ms: The same with prefill.
        num_tokens: Tokens emitted, one figure a prompt.
        num_equal: Answers token-identical to plain decoding's.
    """

    drafter: str
    category: str
    stats: DecodingStats = field(default_factory=DecodingStats)
    decode_ms: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    num_equal: int = 0

    def add(self, generation: Generation, plain: Generation) -> None:
        """Adds one answer.

        Args:
            generation: Of this drafter.
            plain: Of plain decoding, for the same prompt.
        """
        self.stats.add(generation.stats)
        self.decode_ms.append(generation.timings.decode_ms)
        self.total_ms.append(generation.timings.decode_ms + generation.timings.prefill_ms)
        self.num_tokens.append(len(generation.token_ids))
        self.num_equal += generation.token_ids == plain.token_ids

    @property
    def tokens_per_second(self) -> float:
        """Tokens after the first per second after the first, over all prompts."""
        later = sum(self.num_tokens) - len(self.num_tokens)
        return 1e3 * later / sum(self.decode_ms) if sum(self.decode_ms) else 0.0


def measure_speed(
    generator: SpeculativeGenerator,
    prompts: Sequence[BenchPrompt],
    drafters: Sequence[str],
    *,
    max_tokens: int = 128,
    rounds: int = 1,
    on_progress: Callable[[], None] = lambda: None,
) -> list[Measurement]:
    """Decodes each prompt plainly and with each drafter, one after the other, greedily.

    Interleaved, so that whatever else the machine does slows all of them alike; the order turns
    with each prompt. Per prompt and drafter the fastest of the rounds counts.

    Args:
        generator: Target, tokenizer and settings; its drafter is replaced.
        prompts: What to decode.
        drafters: Registered names; plain decoding is always among them.
        max_tokens: Most tokens of an answer.
        rounds: Times that everything is decoded.
        on_progress: Called after each prompt.
    """
    names = [PLAIN, *(name for name in drafters if name != PLAIN)]
    arms = {name: _arm(generator, name) for name in names}
    found: dict[tuple[str, str], Measurement] = {}
    params = SamplingParams(max_tokens=max_tokens)
    _decode(arms[PLAIN], prompts[0], params)  # warm-up
    for turn, prompt in enumerate(prompts):
        best: dict[str, Generation] = {}
        for round_ in range(rounds):
            shift = (turn + round_) % len(names)
            for name in names[shift:] + names[:shift]:
                generation = _decode(arms[name], prompt, params)
                if name not in best or _decode_ms(generation) < _decode_ms(best[name]):
                    best[name] = generation
        for name in names:
            key = (prompt.category, name)
            measured = found.setdefault(key, Measurement(name, prompt.category))
            measured.add(best[name], best[PLAIN])
        on_progress()
    return list(found.values())


def speed_report(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Returns the figures and the machine as plain data.

    Args:
        measurements: Of one run.
    """
    plain = {m.category: m for m in measurements if m.drafter == PLAIN}
    return {
        "machine": machine(),
        "results": [_figures(m, plain[m.category]) for m in measurements],
    }


def _figures(measured: Measurement, plain: Measurement) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(plain.decode_ms, measured.decode_ms, strict=True) if b]
    total = sum(plain.total_ms) / sum(measured.total_ms)
    plain_speed = plain.tokens_per_second  # 0 when every answer is a single token
    return {
        "category": measured.category,
        "drafter": measured.drafter,
        "num_prompts": len(measured.num_tokens),
        "num_tokens": sum(measured.num_tokens),
        "num_equal_to_plain": measured.num_equal,
        "mean_acceptance_length": round(measured.stats.mean_acceptance_length, 3),
        "num_accepted_tokens_per_pos": measured.stats.num_accepted_tokens_per_pos,
        "speculation": measured.stats.to_dict(),
        "tokens_per_second": round(measured.tokens_per_second, 2),
        "speedup": round(measured.tokens_per_second / plain_speed, 3) if plain_speed else None,
        "speedup_median_of_prompts": round(statistics.median(ratios), 3) if ratios else None,
        "speedup_with_prefill": round(total, 3),
    }


def _arm(generator: SpeculativeGenerator, name: str) -> SpeculativeGenerator:
    """Nothing is kept between requests: the second arm would find the prompts of the first.

    Plain decoding is never strict, so that a strict run shows what strictness costs.
    """
    config = replace(generator.config, strict=generator.config.strict and name != PLAIN)
    drafter = named_drafter(name)
    target, tokenizer, costs = generator.target, generator.tokenizer, generator.costs
    if costs is not None:
        costs = costs_of(target, tokenizer, drafter, config)
    return SpeculativeGenerator(target, tokenizer, drafter, config, costs)


def _decode(arm: SpeculativeGenerator, prompt: BenchPrompt, params: SamplingParams) -> Generation:
    return arm.generate_batch([[{"role": "user", "content": prompt.text}]], params)[0]


def _decode_ms(generation: Generation) -> float:
    return generation.timings.decode_ms
