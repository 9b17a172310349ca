"""transformers ``generate``: plainly, assisted, or with prompt lookup."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from transformers.generation.streamers import BaseStreamer
from wire import Engine, serve

_LOOKUP = ("prompt_lookup_num_tokens", "max_matching_ngram_size")


class _Clock(BaseStreamer):  # type: ignore[misc] # transformers has no types
    """Notes when tokens come and how many."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.tokens: list[int] = []
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        """Is handed the prompt first, then each round's tokens."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.times.append(time.perf_counter())
        self.tokens.append(value.numel())

    def end(self) -> None:
        """Has nothing to do."""


def _open(start: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    torch.set_num_threads(start["threads"])
    transformers.utils.logging.set_verbosity_error()
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(start["model"], dtype=torch.float32).eval()
    options = {name: start[name] for name in _LOOKUP if name in start}
    settings = ", ".join(f"{name}={value}" for name, value in options.items())
    if start.get("assisted"):
        if start.get("draft"):
            options["assistant_model"] = load(start["draft"], dtype=torch.float32).eval()
            settings = f"assistant {start['draft']}"
        else:
            options["assistant_early_exit"] = max(1, model.config.num_hidden_layers // 3)
            settings = (
                f"assistant: the first {options['assistant_early_exit']} layers of "
                f"{model.config.num_hidden_layers}, not trained for that"
            )

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        clock = _Clock()
        ids = torch.tensor([prompt_ids])
        # A fixed length goes over end tokens, as the other engines do, and does not forbid them.
        ending = {"eos_token_id": None} if min_tokens else {}
        started = time.perf_counter()
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                do_sample=False,
                streamer=clock,
                pad_token_id=0,
                **ending,
                **options,
            )
        begun = [started, *clock.times]
        spent = [1e3 * (b - a) for a, b in zip(begun[:-1], begun[1:], strict=True)]
        rounds = len(clock.tokens) - 1
        return {
            "token_ids": found[0, len(prompt_ids) :].tolist(),
            "prefill_ms": spent[0],
            "decode_ms": sum(spent[1:]),
            "step_ms": spent[1:],
            "step_tokens": clock.tokens[1:],
            "mean_acceptance_length": sum(clock.tokens[1:]) / rounds if rounds else 1.0,
        }

    return decode, {"settings": settings or "as by default"}


if __name__ == "__main__":
    serve(_open)
