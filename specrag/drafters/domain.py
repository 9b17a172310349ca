"""What kind of text an answer is just now: code, mathematics or plain text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

CODE, MATH, TEXT = DOMAINS = ("code", "math", "text")

_CLEAR = 2.0
"""Least score of code or mathematics; prose reaches some of it by chance."""

_TYPICAL_CHARACTERS = 400
"""A longer text must show proportionally more of a feature, or any long one would have them all."""


_CODE_FIRST = 0.6
"""Share of the score of mathematics that suffices for code."""

_PROMPT_TOKENS = 200
_RECENT_CHARACTERS = 400
_TOKENS_A_LOOK = 16

_EVEN_TOKENS = 32
"""Length of an answer that counts as much as its prompt."""

_FENCE = "```"


class _Feature:
    """Something that speaks for a domain each time it occurs, up to a limit."""

    def __init__(self, weight: float, most: int, pattern: str, flags: re.RegexFlag) -> None:
        self._weight = weight
        self._most = most
        self._pattern = re.compile(pattern, flags | re.MULTILINE)

    def score(self, text: str) -> float:
        found = len(self._pattern.findall(text)) * min(1.0, _TYPICAL_CHARACTERS / (len(text) + 1))
        return self._weight * min(found, self._most)


_ANY_CASE, _AS_WRITTEN = re.IGNORECASE, re.RegexFlag(0)

_FEATURES = {
    CODE: (
        # What is talked about.
        _Feature(
            2.0,
            1,
            r"\b(python|javascript|typescript|java|html|css|sql|bash|golang|fortran|regex)\b|\bc\+\+",
            _ANY_CASE,
        ),
        _Feature(
            0.7,
            3,
            r"\b(functions?|algorithms?|programs?|scripts?|codes?|implement\w*|api|arrays?|strings?"
            r"|linked list|compil\w+|debug\w*|recursi\w+|queue|o\(n\))\b",
            _ANY_CASE,
        ),
        _Feature(
            1.5,
            1,
            r"\b(write|implement|create|develop|design|fix|complete|explain) (me )?(a|an|the|this)"
            r" ([\w+#-]+ ){0,2}(function|program|script|class|method|code"
            r"|algorithm|query|website)\b",
            _ANY_CASE,
        ),
        # How it is written.
        _Feature(2.0, 1, r"```", _AS_WRITTEN),
        _Feature(
            2.0,
            3,
            r"^\s*(def \w+\(|class \w+|import \w+|from \S+ import |return\b|#include|elif |else:"
            r"|(for|while|if) .*[:{]$|(public|private|static|const|let|var|func|fn|void|int) \w+)",
            _AS_WRITTEN,
        ),
        _Feature(0.6, 4, r"[{};]\s*$", _AS_WRITTEN),
        _Feature(0.5, 4, r"\b[a-zA-Z_][\w.]+\([^()\s]*\)", _AS_WRITTEN),
        _Feature(0.5, 4, r"[=!]=|[-=]>|[-+*]=|::|&&|\|\|", _AS_WRITTEN),
        _Feature(0.5, 3, r"\b[a-z]+_[a-z_]+\b", _AS_WRITTEN),
        _Feature(0.3, 4, r"^(    |\t)\s*\S", _AS_WRITTEN),
    ),
    MATH: (
        _Feature(
            1.3,
            2,
            r"\b(how (many|much|long|old|far|fast|tall)|what (is|are|was) the (sum|value|product"
            r"|total|area|perimeter|probability|remainder)|calculate|solve|simplify|evaluate)\b",
            _ANY_CASE,
        ),
        _Feature(
            0.4,
            4,
            r"\b(equations?|inequalit\w+|integers?|fractions?|percent\w*|probability|triangles?"
            r"|polynomials?|remainder|sum|product|total|average|altogether|twice|half|each|every"
            r"|times|per|left|more|less|than)\b",
            _ANY_CASE,
        ),
        _Feature(
            0.3,
            5,
            r"(?<![\w.])\d+([.,]\d+)*(?!\w)"
            r"|\b(two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|dozen|hundred)\b",
            _ANY_CASE,
        ),
        _Feature(0.5, 3, r"[$€£]\s?\d|\d\s?%", _AS_WRITTEN),
        _Feature(
            1.0, 4, r"[\dx)]\s?[+*/×÷=^<>]\s?[\dx(]|\d - \d|\b[fg]\(x\)|\b\d+[xy]\b", _AS_WRITTEN
        ),
        _Feature(
            1.5, 3, r"\\(frac|sqrt|times|cdot|sum|int|left|begin|boxed)\b|\$[^$\n]+\$", _AS_WRITTEN
        ),
    ),
}


def scores(text: str) -> dict[str, float]:
    """Returns what speaks for code and for mathematics.

    Args:
        text: A few sentences of a prompt or an answer.
    """
    return {
        domain: sum(feature.score(text) for feature in features)
        for domain, features in _FEATURES.items()
    }


def recognise(text: str) -> str:
    """Returns the domain of a text.

    Args:
        text: A few sentences of a prompt or an answer.
    """
    return _clearest(scores(text))


def _clearest(found: Mapping[str, float]) -> str:
    # A program about numbers reads like mathematics, but hardly the other way round.
    if found[CODE] >= max(_CLEAR, _CODE_FIRST * found[MATH]):
        return CODE
    return MATH if found[MATH] >= _CLEAR else TEXT


class Decoder(Protocol):
    """Makes text of token ids; a ``Tokenizer`` does."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of token ids.

        Args:
            token_ids: Ids of one vocabulary.
        """


class DomainTracker:
    """Follows the domain of one row as its answer grows.

    The answer outweighs the prompt as it grows. A code block makes it code until the block ends;
    from there on the answer is judged by what comes behind. Text is decoded and judged once for
    16 tokens, and only when somebody asks, so the domain may be that many tokens late.

    Args:
        decoder: Of the target's vocabulary; without one everything is text.
        prompt_ids: The prompt.
    """

    def __init__(self, decoder: Decoder | None, prompt_ids: Sequence[int]) -> None:
        self._decoder = decoder
        self._prompt_ids = prompt_ids[-_PROMPT_TOKENS:]
        self._prompt: Mapping[str, float] = {}
        self._unread: list[int] = []
        self._num_read = 0
        self._answer = ""
        self._domain = TEXT

    def observe(self, token_ids: Sequence[int]) -> None:
        """Takes note of tokens of the answer.

        Args:
            token_ids: The tokens in order.
        """
        if self._decoder is not None:
            self._unread.extend(token_ids)

    @property
    def domain(self) -> str:
        """The domain of what the row is writing."""
        if self._decoder is not None:
            self._look(self._decoder)
        return self._domain

    def _look(self, decoder: Decoder) -> None:
        if self._prompt and len(self._unread) < _TOKENS_A_LOOK:
            return
        self._prompt = self._prompt or scores(decoder.decode(self._prompt_ids))
        # Read in fixed steps, so that the domain does not depend on when it was asked for.
        while len(self._unread) >= _TOKENS_A_LOOK:
            self._answer += decoder.decode(self._unread[:_TOKENS_A_LOOK])
            self._num_read += _TOKENS_A_LOOK
            del self._unread[:_TOKENS_A_LOOK]
        self._domain = self._judged()

    def _judged(self) -> str:
        _, *behind_fences = self._answer.split(_FENCE)
        if len(behind_fences) % 2:
            return CODE
        recent = behind_fences[-1] if behind_fences else self._answer
        found = scores(recent[-_RECENT_CHARACTERS:])
        share = self._num_read / (self._num_read + _EVEN_TOKENS)
        return _clearest(
            {name: (1 - share) * self._prompt[name] + share * found[name] for name in found}
        )
