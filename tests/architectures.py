"""Tiny random models of many architectures, built once: name -> target, float32 and seeded."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.stateful import StatefulTarget
from specrag.models.suitability import tree_obstacle
from specrag.models.tiny import tiny_target
from specrag.models.transformers_target import TransformersTarget

VOCAB = 40
WINDOW = 8
"""Narrow enough that the tests look far beyond it."""

CONTEXT = 96

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ENDS = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LATENT = _EXPERTS | {
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "num_key_value_heads": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
_WINDOW = {"sliding_window": WINDOW}
_MIXED = _WINDOW | {"layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
_MAMBA = _ENDS | {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4}

SPECULATING: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _COMMON),
    "mistral": ("mistral", _COMMON | {"sliding_window": None}),
    "mistral-window": ("mistral", _COMMON | _WINDOW),
    "mixtral": ("mixtral", _COMMON | _WINDOW | {"num_local_experts": 4}),
    "qwen2": ("qwen2", _COMMON),
    "qwen2-window": (
        "qwen2",
        _COMMON | _WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", _COMMON | {"head_dim": 8}),
    "qwen3-window": (
        "qwen3",
        _COMMON | _WINDOW | {"head_dim": 8, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen3_moe": ("qwen3_moe", _COMMON | _EXPERTS | {"head_dim": 8}),
    "phi3": ("phi3", _COMMON | {"sliding_window": None}),
    "phi3-window": ("phi3", _COMMON | _WINDOW),
    "starcoder2-window": ("starcoder2", _COMMON | _WINDOW),
    "gemma2": ("gemma2", _COMMON | _MIXED),
    "gemma3_text": ("gemma3_text", _COMMON | _MIXED),
    "cohere2": ("cohere2", _COMMON | _MIXED | {"logit_scale": 1.0}),
    "gpt_oss": ("gpt_oss", _COMMON | _MIXED | {"num_local_experts": 4}),
    "olmo2": ("olmo2", _COMMON),
    "olmo3": ("olmo3", _COMMON | _MIXED),
    "granite": ("granite", _COMMON),
    "smollm3": ("smollm3", _COMMON | {"no_rope_layers": [1, 0]}),
    "smollm3-window": ("smollm3", _COMMON | _MIXED | {"use_sliding_window": True}),
    "deepseek_v3": ("deepseek_v3", _COMMON | _LATENT),
    "gpt_neox": ("gpt_neox", _COMMON),
    "gpt2": ("gpt2", _ENDS | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}),
    "opt": ("opt", _COMMON | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
}
"""Name -> model type and options of the models that take trees."""

PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": ("mamba", _MAMBA),
    "falcon_h1": (
        "falcon_h1",
        _COMMON
        | {"mamba_d_ssm": 16, "mamba_n_heads": 4, "mamba_d_head": 4, "mamba_d_state": 8}
        | {"mamba_n_groups": 1, "mamba_chunk_size": 4},
    ),
    "bamba": (
        "bamba",
        _COMMON
        | {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1}
        | {"mamba_chunk_size": 4, "attn_layer_indices": [1]},
    ),
    "recurrent_gemma": (
        "recurrent_gemma",
        _COMMON | {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": WINDOW},
    ),
    "lfm2": ("lfm2", _COMMON | {"layer_types": ["conv", "full_attention"]}),
    "bloom": ("bloom", _ENDS | {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "mpt": ("mpt", _ENDS | {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": CONTEXT}),
    "gpt_neo": (
        "gpt_neo",
        _ENDS
        | {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": WINDOW}
        | {"attention_types": [[["global", "local"], 1]], "max_position_embeddings": CONTEXT},
    ),
    "openai-gpt": (
        "openai-gpt",
        {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
    ),
}
"""Name -> model type and options of the models that only decode plainly."""

EVERY = ("tiny", *SPECULATING, *PLAIN)


def new_model(kind: str, **options: Any) -> Any:
    """Builds a random float32 causal LM whose logits are peaked enough to tell faults apart."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).float()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.3)
    return model.eval()


@cache
def target_of(name: str) -> TransformersTarget:
    """Returns the target of that name, built at the first call."""
    if name == "tiny":
        return tiny_target(vocab_size=VOCAB)
    if name in PLAIN:
        kind, options = PLAIN[name]
        model = new_model(kind, **options)
        return StatefulTarget(model, name, tree_obstacle(model))
    kind, options = SPECULATING[name]
    return HuggingFaceTarget(new_model(kind, **options), name)
