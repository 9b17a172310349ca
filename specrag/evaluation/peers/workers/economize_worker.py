"""economize with prompt lookup on a transformers model."""

from __future__ import annotations

import time
from typing import Any

import economize
import torch
import transformers
from economize.techniques.lookup.config import LookupConfig
from wire import Engine, serve

_CYCLE = 8  # one token of the exact pass and seven drafted ones


def _open(start: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    torch.set_num_threads(start["threads"])
    base = transformers.AutoModelForCausalLM.from_pretrained(start["model"], dtype=torch.float32)
    model = economize.apply(base.eval(), LookupConfig())
    ends = base.generation_config.eos_token_id
    config = economize.DecodeConfig(cycle_length=_CYCLE)

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        ids = torch.tensor(prompt_ids)
        stop = None if min_tokens else ends
        # It tells no time of its own: the first token alone is timed in a run before.
        started = time.perf_counter()
        model.decode(ids, 1, decoding=config, stop=stop)
        begun = time.perf_counter()
        found = model.decode(ids, max_tokens, decoding=config, stop=stop)
        total_ms = 1e3 * (time.perf_counter() - begun)
        prefill_ms = min(total_ms, 1e3 * (begun - started))
        count = len(found.tokens)
        accepted = sum(taken for _, taken in found.acceptance)
        passes = max(1, count - 1 - accepted)
        return {
            "token_ids": found.tokens.tolist(),
            "prefill_ms": prefill_ms,
            "decode_ms": total_ms - prefill_ms,
            "mean_acceptance_length": max(1.0, (count - 1) / passes),
        }

    settings = f"lookup as by default, cycles of {_CYCLE} tokens"
    return decode, {"settings": settings}


if __name__ == "__main__":
    serve(_open)
