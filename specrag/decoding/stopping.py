"""When an answer ends: end token, stop token, stop string and length, in this one place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from specrag.decoding.detokenizer import Detokenizer
from specrag.decoding.sampling import SamplingParams

FinishReason = Literal["stop", "length", "cancelled"]


class StopChecker:
    """Takes the committed tokens of a row, gives the text to show, and says when to end.

    Text that might be the beginning of a stop string is held back until it is decided, so a
    stream never shows what it would have to take back.

    Args:
        params: Stop strings, stop tokens, the fewest and the most tokens.
        eos_token_ids: The model's own end tokens.
        detokenizer: Fresh; makes text of the tokens.
        room: Tokens that fit into the context; an answer that fills it ends with ``length``.
    """

    def __init__(
        self,
        params: SamplingParams,
        eos_token_ids: Collection[int],
        detokenizer: Detokenizer,
        room: int,
    ) -> None:
        ends = () if params.ignore_eos else tuple(eos_token_ids)
        self._end_tokens = frozenset((*ends, *params.stop_token_ids))
        self._stops = params.stop
        self._limit = min(params.max_tokens, room)
        self._min_tokens = params.min_tokens
        self._detokenizer = detokenizer
        self._held = ""
        self._exempt = 0  # characters of the held text in which no stop string may end
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None

    @property
    def tokens_left(self) -> int:
        """Tokens that may still come."""
        return 0 if self.finish_reason else self._limit - self.num_tokens

    def push(self, token_ids: Sequence[int]) -> tuple[int, str]:
        """Takes the tokens of one round.

        A stop string counts once a token behind the first ``min_tokens`` completes it.

        Args:
            token_ids: Committed tokens; those behind the end of the answer are left out.

        Returns:
            How many of them belong to the answer (an end token does, its text does not), and the
            text that can be shown now.
        """
        shown = ""
        for taken, token in enumerate(token_ids, start=1):
            shown += self._push_one(token)
            if self.finish_reason:
                return taken, shown
        return len(token_ids), shown

    def cancel(self) -> str:
        """Ends the row early; harmless to repeat, and without effect on a row that has ended.

        Returns:
            The text that was held back and is no stop string after all, to be shown.
        """
        return "" if self.finish_reason else self._finish("cancelled")

    def _push_one(self, token: int) -> str:
        self.num_tokens += 1
        if token in self._end_tokens:
            return self._finish("stop")
        text = self._held + self._detokenizer.push(token)
        end = self._first_stop(text)
        if end is not None:
            self._held = ""
            self.finish_reason = "stop"
            return text[:end]
        num_shown = len(text) - self._length_undecided(text)
        self._held = text[num_shown:]
        self._exempt = max(0, self._exempt - num_shown)
        shown = text[:num_shown]
        return shown + self._finish("length") if self.num_tokens >= self._limit else shown

    def _finish(self, reason: FinishReason) -> str:
        rest = self._held + self._detokenizer.flush()
        end = self._first_stop(rest)
        self._held = ""
        self.finish_reason = "stop" if end is not None and reason == "length" else reason
        return rest if end is None else rest[:end]

    def _first_stop(self, text: str) -> int | None:
        """Where the first stop string begins that ends behind the exempt characters."""
        if self.num_tokens <= self._min_tokens:
            self._exempt = len(text)
            return None
        starts = [text.find(stop, max(0, self._exempt - len(stop) + 1)) for stop in self._stops]
        return min((at for at in starts if at >= 0), default=None)

    def _length_undecided(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop string and could become one.

        A whole one is none of these: it came too early to count.
        """
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            end = text[-size:]
            if any(len(stop) > size and stop.startswith(end) for stop in self._stops):
                return size
        return 0
