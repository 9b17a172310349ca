"""flashspec with its prompt lookup on a transformers model."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
from flashspec.engine import NgramDrafter, TargetModel
from wire import Engine, serve


def _open(start: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    torch.set_num_threads(start["threads"])
    device = torch.device("cpu")
    transformers.utils.logging.set_verbosity_error()
    base = transformers.AutoModelForCausalLM.from_pretrained(start["model"], dtype=torch.float32)
    target = TargetModel(start["model"], device, torch.float32, model=base.eval())
    config = FlashSpecConfig(
        device="cpu",
        drafter_strategy="bandit",
        bandit=BanditConfig(n_arms=1),
        sampling=SamplingConfig(temperature=0.0),
        compile=False,
    )
    engine = SpeculativeEngine(config, [NgramDrafter()], target)
    ends = base.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        ids = torch.tensor([prompt_ids])
        stop = [] if min_tokens else ends
        # It tells no time of its own: the first token alone is timed in a run before.
        started = time.perf_counter()
        engine.generate(ids, max_new_tokens=1, eos_token_ids=stop)
        begun = time.perf_counter()
        found = engine.generate(ids, max_new_tokens=max_tokens, eos_token_ids=stop)
        total_ms = 1e3 * (time.perf_counter() - begun)
        prefill_ms = min(total_ms, 1e3 * (begun - started))
        tokens = found.output_ids[0, : found.n_tokens_generated].tolist()
        rounds = max(1, len(found.arm_steps))
        return {
            "token_ids": tokens,
            "prefill_ms": prefill_ms,
            "decode_ms": total_ms - prefill_ms,
            "mean_acceptance_length": max(1.0, (len(tokens) - 1) / rounds),
        }

    return decode, {"settings": "NgramDrafter as by default, greedy"}


if __name__ == "__main__":
    serve(_open)
