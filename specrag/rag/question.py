"""Question: what is asked, in which conversation, and how it shall be answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from specrag.decoding.sampling import SamplingParams
from specrag.errors import InputError, suggest
from specrag.models.tokenizer import Message
from specrag.rag.config import check_mode
from specrag.retrieval.filters import Filter

ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Chat:
    """What stands around a question.

    Attributes:
        system: Instead of the pipeline's own system prompt; None keeps that.
        history: Earlier turns, the oldest first; none is the system's.
    """

    system: str | None = None
    history: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        for turn in self.history:
            if turn.get("role") not in ROLES or not isinstance(turn.get("content"), str):
                raise InputError(
                    f"a turn of the history has a role and a content, got {dict(turn)!r}",
                    hint=suggest(str(turn.get("role")), ROLES),
                )


class AskOptions(TypedDict, total=False):
    """How a question shall be answered; what is left out is as the pipeline says.

    Attributes:
        mode: ``auto``, ``always`` or ``never``.
        k: Passages to look up.
        params: How to generate.
        where: Which documents to look in.
        system: Instead of the pipeline's own system prompt.
        history: Earlier turns of the conversation, the oldest first.
        timeout_s: Most seconds that it may take, waiting included.
    """

    mode: str | None
    k: int | None
    params: SamplingParams | None
    where: Filter | None
    system: str | None
    history: Sequence[Message]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Question:
    """One question with everything that decides on its answer.

    Attributes:
        text: In plain words, without space around it.
        mode: ``auto``, ``always`` or ``never``.
        k: Passages to look up.
        params: How to generate.
        where: Which documents to look in; None for all.
        chat: What stands around it.
        timeout_s: Most seconds that it may take, waiting included; None for no end.

    Raises:
        InputError: It is blank, it has no time, or no passage would be looked up.
        ConfigError: The mode is unknown.
    """

    text: str
    mode: str
    k: int
    params: SamplingParams
    where: Filter | None = None
    chat: Chat = field(default_factory=Chat)
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_mode(self.mode)
        if self.k < 1:
            raise InputError(f"k must be at least 1, got {self.k}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InputError(f"timeout_s must be above 0, got {self.timeout_s}")
        if not self.text.strip():
            raise InputError(f"the question is blank: {self.text!r}", hint="ask something")
        object.__setattr__(self, "text", self.text.strip())
