"""Arms of this engine: plain decoding and each drafter, timed pass by pass."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.costs import costs_of
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.evaluation.speed.arm import ReferenceArm, Sample

PLAIN = "none"


class EngineArm(ReferenceArm):
    """Decodes with a generator of this engine, keeping nothing between prompts.

    Args:
        generator: Its prefix cache is not used: the second arm would find the prompts of the
            first.
        name: What it is called in the report.
        sampling: How tokens are chosen; greedily by default. Its length is not used.
    """

    def __init__(
        self,
        generator: SpeculativeGenerator,
        name: str,
        sampling: SamplingParams = SamplingParams(),  # noqa: B008 - it is frozen
    ) -> None:
        self._sampling = sampling
        self._generator = SpeculativeGenerator(
            generator.target,
            generator.tokenizer,
            generator.drafter,
            generator.config,
            generator.costs,
        )
        self.name = name
        target = generator.target
        self.details = {
            "engine": "specrag",
            "dtype": str(target.dtype).removeprefix("torch."),
            "quantization": target.quantization,
            "device": str(target.device),
        }
        if target.no_speculation:
            self.details["decoded plainly"] = target.no_speculation

    def decode(self, prompt_ids: Sequence[int], max_tokens: int, min_tokens: int = 0) -> Sample:
        """Decodes one prompt and times each pass; ``min_tokens`` is none or all of them.

        A fixed length goes over end tokens instead of forbidding them, so that each token is
        chosen as it always is, and an answer that ends there ends with its own end token.

        Args:
            prompt_ids: The prompt.
            max_tokens: Most tokens of the answer.
            min_tokens: 0, or as many as ``max_tokens`` to fix the length.
        """
        assert min_tokens in (0, max_tokens), "this engine fixes a length or leaves it open"
        wanted = replace(self._sampling, max_tokens=max_tokens, ignore_eos=min_tokens > 0)
        return self._decode(prompt_ids, wanted)

    def look(self, prompt_ids: Sequence[int], max_tokens: int) -> Sample:
        """Decodes to the model's own end and notes how close each choice was.

        The two best tokens are read from the logits that decoding has at hand anyway, so that the
        passes, and with them the tokens, are those of ``decode``.

        Args:
            prompt_ids: The prompt.
            max_tokens: Most tokens of the answer.
        """
        wanted = replace(self._sampling, max_tokens=max_tokens, top_logprobs=2)
        return self._decode(prompt_ids, wanted)

    def peak_memory_mb(self) -> float | None:
        """Returns the peak of this process, which holds all arms of this engine at once."""
        if not importlib.util.find_spec("resource"):
            return None  # a system that is no Unix
        resource: Any = importlib.import_module("resource")
        peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)

    def close(self) -> None:
        """Does nothing: the target belongs to whoever loaded it."""

    def _decode(self, prompt_ids: Sequence[int], params: SamplingParams) -> Sample:
        request = self._generator.request(list(prompt_ids), params)
        started = time.perf_counter()
        # Opening is part of reading the prompt: drafters index it there.
        session = self._generator.open([request])
        try:
            session.step()
            prefill_ms = 1e3 * (time.perf_counter() - started)
            step_ms, step_tokens = _passes(session)
        finally:
            session.close()
        row = session.rows[0]
        return Sample(
            tuple(row.token_ids),
            prefill_ms,
            sum(step_ms),
            step_ms,
            step_tokens,
            row.stats,
            row.stats.mean_acceptance_length,
            tuple(_margin(found) for found in row.top_logprobs),
        )


def engine_arms(
    generator: SpeculativeGenerator,
    drafters: Mapping[str, Drafter],
    configs: Mapping[str, SpeculationConfig] | None = None,
    sampling: SamplingParams = SamplingParams(),  # noqa: B008 - it is frozen
) -> tuple[EngineArm, list[EngineArm]]:
    """Makes the arms of one target: plain decoding, and one for each drafter.

    Plain decoding is never strict, so that a strict run shows what strictness costs.

    Args:
        generator: Target, tokenizer and settings. Its own drafter may be among ``drafters``; where
            its costs were measured, those of the others are too.
        drafters: By the name that the report gives them; ``none`` is left out, being the plain arm.
        configs: How much those draft that differ from the generator's settings.
        sampling: How tokens are chosen; with a seed, so that all arms choose alike.

    Returns:
        The plain arm, and the others.
    """
    target, tokenizer, shared = generator.target, generator.tokenizer, generator.config
    plain = SpeculativeGenerator(
        target, tokenizer, named_drafter(PLAIN), replace(shared, strict=False)
    )
    arms = []
    for name, drafter in drafters.items():
        if name == PLAIN:
            continue
        config, costs = (configs or {}).get(name, shared), generator.costs
        if costs is not None and (drafter is not generator.drafter or config != shared):
            costs = costs_of(target, tokenizer, drafter, config)
        own = SpeculativeGenerator(target, tokenizer, drafter, config, costs)
        arms.append(EngineArm(own, name, sampling))
    return EngineArm(plain, PLAIN, sampling), arms


def _passes(session: DecodingSession) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Steps to the end; returns the time and the number of tokens of each pass."""
    times, tokens = [], []
    while not session.finished:
        started = time.perf_counter()
        update = session.step()[0]
        times.append(1e3 * (time.perf_counter() - started))
        tokens.append(len(update.token_ids))
    return tuple(times), tuple(tokens)


def _margin(best: Sequence[tuple[int, float]]) -> float:
    """Returns by how much probability the best token led."""
    probs = [math.exp(logprob) for _, logprob in best]
    return probs[0] - (probs[1] if len(probs) > 1 else 0.0)
