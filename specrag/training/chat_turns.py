"""Where the turns of a chat begin and end, told from what the template does to a marker."""

from __future__ import annotations

from dataclasses import dataclass

from specrag.errors import ConfigError
from specrag.models.tokenizer import Tokenizer

# Letters alone: templates trim spaces, and some escape other signs.
_QUESTION, _ANSWER, _NEXT = "specragquestion", "specraganswer", "specragnext"


@dataclass(frozen=True, slots=True)
class ChatTurns:
    """The tokens around the turns of a chat.

    Attributes:
        user_prefix: All that stands before the first message of a user.
        user_end: The token that ends it; None when a text does.
        user_end_text: The text between it and the answer.
        answer_end: The token that ends an answer, where there is one.
    """

    user_prefix: tuple[int, ...]
    user_end: int | None
    user_end_text: str
    answer_end: int | None


def chat_turns(tokenizer: Tokenizer) -> ChatTurns:
    """Finds the turns of a tokenizer's chat template.

    Args:
        tokenizer: With or without a template of its own.

    Raises:
        ConfigError: The template does not show a message as it was given.
    """
    text = tokenizer.chat_text([{"role": "user", "content": _QUESTION}])
    before, after = _around(text, _QUESTION)
    # A space before the message belongs to its first word in most vocabularies.
    prefix = tokenizer.encode(before.rstrip(" "))
    special = special_token_ids(tokenizer)
    first = next(iter(tokenizer.encode(after)), None)
    return ChatTurns(
        tuple(prefix),
        first if first in special else None,
        after,
        _answer_end(tokenizer, special, prefix),
    )


def special_token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the tokens that are marks and no text.

    Args:
        tokenizer: Any.
    """
    added = tokenizer.backend.added_tokens_decoder
    return frozenset(int(index) for index, token in added.items() if token.special)


def _answer_end(tokenizer: Tokenizer, special: frozenset[int], prefix: list[int]) -> int | None:
    roles = (("user", _QUESTION), ("assistant", _ANSWER), ("user", _NEXT))
    text = tokenizer.chat_text([{"role": role, "content": content} for role, content in roles])
    first = next(iter(tokenizer.encode(_around(text, _ANSWER)[1])), None)
    # Without an end of its own, the answer is followed by the mark that opens the next turn.
    opening = next((token for token in reversed(prefix) if token in special), None)
    return first if first in special and first != opening else tokenizer.eos_token_id


def _around(text: str, marker: str) -> tuple[str, str]:
    before, found, after = text.partition(marker)
    if not found or marker in after:
        raise ConfigError(
            f"the chat template shows a message {text.count(marker)} times instead of once",
            hint="use a target whose template repeats a message as it was given",
        )
    return before, after
