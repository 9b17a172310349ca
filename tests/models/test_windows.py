"""Which masks a model takes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from specrag.models.windows import FULL, SLIDING, AttentionWindows, attention_windows
from tests.architectures import SPECULATING, WINDOW, target_of

ALL = AttentionWindows({FULL: None})
UNIFORM = AttentionWindows({SLIDING: WINDOW})
MIXED = AttentionWindows({FULL: None, SLIDING: WINDOW})
EXPECTED = (
    dict.fromkeys(["mistral-window", "mixtral", "phi3-window", "starcoder2-window"], UNIFORM)
    | dict.fromkeys(["qwen2-window", "qwen3-window", "gemma2", "gemma3_text", "cohere2"], MIXED)
    | dict.fromkeys(["gpt_oss", "olmo3", "smollm3-window"], MIXED)
)


@pytest.mark.parametrize("name", SPECULATING)
def test_every_architecture_is_told_its_windows(name: str) -> None:
    assert attention_windows(target_of(name).model) == EXPECTED.get(name, ALL)


def test_a_window_caps_the_context_where_the_masks_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*args: Any) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", gone)
    for name in ("mistral-window", "gemma2"):
        assert attention_windows(target_of(name).model) == AttentionWindows({FULL: None}, WINDOW)
    assert attention_windows(target_of("llama").model) == ALL
