"""Logits processors: those that transformers lacks, and transformers' way to merge custom ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
)


class CountPenaltyLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """Lowers the scores of tokens that the answer already holds.

    The presence and frequency penalties of OpenAI's API: each token of the answer loses
    ``presence + frequency * (times it occurs)``. The prompt does not count.

    Args:
        presence: Taken once from each token that occurs; negative favours repetition.
        frequency: Taken for each time that a token occurs.
        prompt_length: Tokens of the prompt.
    """

    def __init__(self, presence: float, frequency: float, prompt_length: int) -> None:
        self._presence = presence
        self._frequency = frequency
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the lowered scores.

        Args:
            input_ids: ``[1, length]`` prompt and answer so far.
            scores: ``[1, vocab]``.
        """
        tokens, times = torch.unique(input_ids[0, self._prompt_length :], return_counts=True)
        lowered = scores.clone()
        lowered[0, tokens] -= self._presence + self._frequency * times.to(scores.dtype)
        return lowered


class MinTokensLogitsProcessor(MinNewTokensLengthLogitsProcessor):  # type: ignore[misc]
    """Transformers' own, which follows the scores to their device and costs nothing once done.

    Args:
        prompt_length: Tokens of the prompt.
        min_tokens: Tokens of an answer before which none may end it.
        end_token_ids: The tokens that end an answer.
    """

    def __init__(self, prompt_length: int, min_tokens: int, end_token_ids: Sequence[int]) -> None:
        super().__init__(prompt_length, min_tokens, list(end_token_ids))

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores, those of the end tokens minus infinity while it is too early.

        Args:
            input_ids: ``[1, length]`` prompt and answer so far.
            scores: ``[1, vocab]``.
        """
        if input_ids.shape[-1] - self.prompt_length_to_skip >= self.min_new_tokens:
            return scores
        self.eos_token_id: torch.Tensor = self.eos_token_id.to(scores.device)
        masked: torch.Tensor = super().__call__(input_ids, scores)
        return masked


def with_custom(
    processors: Sequence[LogitsProcessor], custom: Sequence[LogitsProcessor]
) -> list[LogitsProcessor]:
    """Adds a user's processors as transformers' ``generate`` does.

    They come last, but one of a kind that is there already takes its place.

    Args:
        processors: Made from the parameters, in order; those of sampling not among them.
        custom: The user's own, in order.
    """
    merged = [
        next((own for own in custom if isinstance(processor, type(own))), processor)
        for processor in processors
    ]
    return merged + [own for own in custom if not any(own is other for other in merged)]
