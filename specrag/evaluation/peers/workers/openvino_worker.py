"""OpenVINO GenAI on a GGUF file: plainly, or with prompt lookup."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
import openvino_genai
from wire import Engine, serve


def _open(start: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    lookup = start.get("prompt_lookup")
    properties = {"INFERENCE_NUM_THREADS": start["threads"], **start.get("properties", {})}
    asked = {"prompt_lookup": True} if lookup else {}
    pipeline = openvino_genai.LLMPipeline(start["model"], "CPU", **properties, **asked)

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = min_tokens > 0
        config.do_sample = False
        config.apply_chat_template = False
        for name, value in (lookup or {}).items():
            setattr(config, name, value)
        ids = np.array([prompt_ids], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        found = pipeline.generate(inputs, config)
        return {"token_ids": list(found.tokens[0]), **_times(found.perf_metrics)}

    details = {"settings": _settings(start)}
    if start["precision"] == "Q4_1":
        details["note"] = "its reader rounds the minima of Q4_1: the weights are not quite the same"
    return decode, details


def _times(metrics: Any) -> dict[str, Any]:
    raw = metrics.raw_metrics
    clock = raw.m_new_token_times  # in milliseconds
    steps = [later - earlier for earlier, later in zip(clock[:-1], clock[1:], strict=True)]
    counts = list(raw.m_batch_sizes)[1:]
    return {
        "prefill_ms": metrics.get_ttft().mean,
        "decode_ms": sum(steps),
        "step_ms": steps,
        "step_tokens": counts,
        "mean_acceptance_length": sum(counts) / len(counts) if counts else 1.0,
    }


def _settings(start: dict[str, Any]) -> str:
    told = {**start.get("properties", {}), **(start.get("prompt_lookup") or {})}
    return ", ".join(f"{name}={value}" for name, value in told.items()) or "as by default"


if __name__ == "__main__":
    serve(_open)
