"""OpenVINO GenAI on a GGUF file: plainly, or with prompt lookup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai
from wire import Engine, serve


def _open(start: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    lookup = bool(start.get("prompt_lookup"))
    options: dict[str, Any] = {"INFERENCE_NUM_THREADS": start["threads"]}
    if lookup:
        options["prompt_lookup"] = True
    pipeline = openvino_genai.LLMPipeline(start["model"], "CPU", **options)

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = min_tokens > 0
        config.do_sample = False
        config.apply_chat_template = False
        if lookup:
            config.num_assistant_tokens = 10
            config.max_ngram_size = 3
        ids = np.array([prompt_ids], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        found = pipeline.generate(inputs, config)
        metrics = found.perf_metrics
        first = metrics.get_ttft().mean
        return {
            "token_ids": list(found.tokens[0]),
            "prefill_ms": first,
            "decode_ms": metrics.get_generate_duration().mean - first,
        }

    details = {
        "version": openvino_genai.__version__,
        "precision": Path(start["model"]).stem.split(".")[-1],
    }
    return decode, details


if __name__ == "__main__":
    serve(_open)
