"""Sliding windows: which layers of a model see only the nearest tokens, and how it is told."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class AttentionWindows:
    """What masks a model takes.

    Attributes:
        by_kind: The window of each kind of layer, None where it sees everything; a single entry
            stands for all layers, and the model takes one mask.
        max_context: Longest context in which the masks are right; None for any.
    """

    by_kind: Mapping[str, int | None]
    max_context: int | None = None


def attention_windows(model: Any) -> AttentionWindows:
    """Finds out which windows a model has and whether masks can express them.

    transformers makes the masks inside the decoder, unless it is given 4-D ones: one for all
    layers, or a dictionary by kind of layer where a model mixes kinds.

    Args:
        model: A transformers causal LM.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    code = _decoder_code(model)
    if not window or (_takes_dictionary(code) and kinds == {FULL}):
        return AttentionWindows({FULL: None})
    window = int(window)
    if _takes_dictionary(code) and SLIDING in kinds:
        return AttentionWindows({FULL: None, SLIDING: window})
    if not _takes_dictionary(code) and "sliding_window_causal_mask" in code:
        return AttentionWindows({SLIDING: window})
    # Not a kind of mask that is known here: within the window, all of them are alike.
    return AttentionWindows({FULL: None}, max_context=window)


def _takes_dictionary(code: str) -> bool:
    return "attention_mask, dict)" in code


def _decoder_code(model: Any) -> str:
    try:
        return inspect.getsource(inspect.unwrap(type(model.get_decoder()).forward))
    except (OSError, TypeError, AttributeError):
        return ""  # installed without sources, or not Python
