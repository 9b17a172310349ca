"""Whether a model can evaluate trees of drafts, told from its class before anything runs."""

from __future__ import annotations

from typing import Any

from specrag.models.transformers_target import forward_parameters

_ATTENTION = {"full_attention", "sliding_attention"}


def tree_obstacle(model: Any) -> str:
    """Returns why a model can only be decoded token by token; empty when it takes trees.

    Speculation rolls tokens back, which a recurrent state cannot do, and evaluates nodes that lie
    side by side in the cache but not in the text, so positions and masks must be given.

    Args:
        model: A transformers causal LM.
    """
    config = model.config.get_text_config()
    kind = config.model_type
    taken = forward_parameters(model)
    odd = sorted(set(getattr(config, "layer_types", None) or _ATTENTION) - _ATTENTION)
    reasons = {
        "keeps a recurrent state, which cannot be rolled back": model._is_stateful,
        f"has {', '.join(odd)} layers, which cannot be rolled back": bool(odd),
        "takes no position_ids": "position_ids" not in taken,
        "takes no cache": not {"cache", "past_key_values"} & taken,
        "derives positions from the attention mask (ALiBi)": getattr(config, "alibi", False),
        "counts a window in cache slots": "local" in getattr(config, "attention_layers", ()),
        "attends within chunks": getattr(config, "attention_chunk_size", None),
        "attends in both directions": getattr(config, "use_bidirectional_attention", None),
    }
    return next((f"{kind} {reason}" for reason, holds in reasons.items() if holds), "")
