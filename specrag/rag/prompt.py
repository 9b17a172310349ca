"""Prompts of the two branches, and how many passages fit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from specrag.models.tokenizer import Message, Tokenizer
from specrag.rag.config import PromptConfig
from specrag.rag.question import Chat
from specrag.retrieval.document import Passage, ScoredPassage

_SLOT = re.compile(r"\{(passages|question)\}")
NO_CHAT = Chat()
_PROBE = "specrag probe question"  # stands in no template


@dataclass(frozen=True, slots=True)
class PackedPrompt:
    """A prompt with the passages that fit into it.

    Attributes:
        messages: What the target is told.
        passages: The passages in it, best first.
        context_tokens: Tokens of these passages, headings included.
    """

    messages: tuple[Message, ...]
    passages: tuple[ScoredPassage, ...] = ()
    context_tokens: int = 0


class PromptBuilder:
    """Writes the prompts of a pipeline.

    Args:
        config: The templates.
        tokenizer: Counts tokens.
        context_tokens: Most tokens for passages.
    """

    def __init__(self, config: PromptConfig, tokenizer: Tokenizer, context_tokens: int) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens

    @property
    def fingerprint(self) -> str:
        """Changes with the templates, the chat format and the budget."""
        text = f"{self._config} {self._context_tokens} {self._tokenizer.fingerprint}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def closed_book(self, question: str, chat: Chat = NO_CHAT) -> PackedPrompt:
        """Returns the prompt without passages.

        Args:
            question: What the user asked.
            chat: What stands around it.
        """
        return PackedPrompt(self._messages(_fill(self._config.without_passages, question), chat))

    def with_passages(
        self, question: str, found: Sequence[ScoredPassage], chat: Chat = NO_CHAT
    ) -> PackedPrompt:
        """Packs passages into the prompt, best first, each whole, until the budget is used up.

        The best passage is always in, whatever its length: an answer without it would not be
        the answer that was asked for.

        Args:
            question: What the user asked.
            found: Passages, best first.
            chat: What stands around the question.
        """
        used: list[ScoredPassage] = []
        texts: list[str] = []
        spent = 0
        for scored in found:
            text = _titled(scored.passage)
            size = len(self._tokenizer.encode(text))
            if used and spent + size > self._context_tokens:
                continue
            used.append(scored)
            texts.append(text)
            spent += size
        user = _fill(self._config.with_passages, question, "\n\n".join(texts))
        return PackedPrompt(self._messages(user, chat), tuple(used), spent)

    def question_span(self, question: str) -> int:
        """Returns how many of the closed-book prompt's last tokens begin with the question.

        Args:
            question: What the user asked.
        """
        # What follows is found with another question: a short one may stand in the template, too.
        probe = self._chat_text(_PROBE)
        num_behind = len(probe) - probe.rindex(_PROBE) - len(_PROBE)
        text = self._chat_text(question)
        return len(self._tokenizer.encode(text[len(text) - num_behind - len(question) :]))

    def _chat_text(self, question: str) -> str:
        return self._tokenizer.chat_text(self.closed_book(question).messages)

    def _messages(self, user: str, chat: Chat) -> tuple[Message, ...]:
        system = self._config.system if chat.system is None else chat.system
        first = ({"role": "system", "content": system},) if system else ()
        return (*first, *chat.history, {"role": "user", "content": user})


def _fill(template: str, question: str, passages: str = "") -> str:
    # Not str.format: passages and questions may hold braces, and even slots, of their own.
    values = {"question": question, "passages": passages}
    return _SLOT.sub(lambda slot: values[slot[1]], template)


def _titled(passage: Passage) -> str:
    # No numbers: a small model goes on counting instead of answering; citations need none.
    return f"{passage.heading or passage.document}\n{passage.text}"
