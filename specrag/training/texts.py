"""Token sequences to train on, read from corpus files and chats, and the part held out of it."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, InputError
from specrag.models.tokenizer import Message, Tokenizer
from specrag.training.chat_turns import chat_turns
from specrag.training.corpus_row import CorpusRow, check, refuse_unknown, text_of
from specrag.training.lines import read_objects

_LOG = logging.getLogger(__name__)
_TEXT_KIND = "text"


@dataclass(frozen=True, slots=True)
class TrainingText:
    """A prompt and its answer, as the target reads them.

    Attributes:
        token_ids: Both, as C ints: a corpus of millions of tokens stays small.
        answer_start: Where the answer begins; at least one token is before and behind it.
        kind: Where the prompt came from.
    """

    token_ids: array[int]
    answer_start: int
    kind: str

    @property
    def num_answer_tokens(self) -> int:
        """Tokens of the answer."""
        return len(self.token_ids) - self.answer_start


def read_texts(
    paths: Iterable[Path],
    tokenizer: Tokenizer,
    *,
    max_tokens: int | None = None,
    vocab_size: int | None = None,
) -> list[TrainingText]:
    """Reads files of JSON lines, plain or packed by gzip or xz, in the order given.

    A row is an answer as ``specrag train corpus`` writes it; or ``messages`` whose last is the
    assistant's; or ``prompt`` and ``response``, both text. Text is tokenized as a chat, and ends
    with the token that ends a turn.

    Args:
        paths: The files.
        tokenizer: The target's.
        max_tokens: Most tokens of a text: the end of a longer answer is cut off. A text whose
            prompt leaves no room for an answer is left out.
        vocab_size: Tokens of the target, when that is more than the tokenizer's.

    Raises:
        InputError: A file cannot be read, a row is damaged (the message names the line), or there
            is nothing to train on.
        ConfigError: ``max_tokens`` has no room for a prompt and an answer.
    """
    if max_tokens is not None and max_tokens < 2:
        raise ConfigError(f"max_tokens must be 2 or more, got {max_tokens}")
    reader = _RowReader(tokenizer, vocab_size or tokenizer.vocab_size)
    found = []
    num_left_out = 0
    names = []
    for path in paths:
        names.append(str(path))
        for place, value in read_objects(path):
            text = reader.read(value, place)
            if max_tokens is not None and text.answer_start >= max_tokens:
                num_left_out += 1
                continue
            found.append(_cut(text, max_tokens))
    if num_left_out:
        _LOG.warning(
            "%d texts left out: their prompts alone have %d tokens or more",
            num_left_out,
            max_tokens,
        )
    if not found:
        raise InputError(
            f"there is nothing to train on in {', '.join(names) or 'no file'}",
            hint="make a corpus with: specrag train corpus",
        )
    return found


def held_out(
    texts: Sequence[TrainingText], share: float = 0.02, seed: int = 0
) -> tuple[list[TrainingText], list[TrainingText]]:
    """Splits texts into those to train on and those to judge by.

    Decided by a hash of each prompt alone: all answers to a prompt are on one side, whatever
    files are added later, and a larger share holds the smaller one.

    Args:
        texts: Any.
        share: About how much of the prompts to hold out, from 0 to below 1.
        seed: Another one holds out others.

    Returns:
        The texts to train on, and those held out.

    Raises:
        ConfigError: The share is out of bounds.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"the share held out must be from 0 to below 1, got {share}")
    sides: tuple[list[TrainingText], list[TrainingText]] = ([], [])
    for text in texts:
        sides[_place_of(text, seed) < share].append(text)
    return sides


class _RowReader:
    """Makes texts of rows of any shape; prompts of a corpus are rendered once each."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._turns = chat_turns(tokenizer)

    def read(self, value: Mapping[str, Any], place: str) -> TrainingText:
        if "response_ids" in value:
            row = CorpusRow.parse(value, place, self._vocab_size)
            return self._text([_user(row.prompt)], row.response_ids, row.kind)
        if "messages" in value:
            refuse_unknown(value, ["messages", "kind"], place)
            *prompt, answer = _messages(value["messages"], place)
            last = answer["content"]
        elif "response" in value:
            refuse_unknown(value, ["prompt", "response", "kind"], place)
            check("prompt" in value, place, "prompt", None, "a text, not blank")
            prompt, last = (
                [_user(text_of(value, "prompt", place))],
                text_of(value, "response", place),
            )
        else:
            raise InputError(
                f"{place} has no answer, only {', '.join(value) or 'nothing'}",
                hint="a row has prompt and response_ids, prompt and response, or messages",
            )
        kind = text_of(value, "kind", place) if "kind" in value else _TEXT_KIND
        end = [] if self._turns.answer_end is None else [self._turns.answer_end]
        return self._text(prompt, [*self._tokenizer.encode(last), *end], kind)

    def _text(self, prompt: list[Message], answer: Sequence[int], kind: str) -> TrainingText:
        ids = array("i", self._tokenizer.encode_chat(prompt))
        start = len(ids)
        ids.extend(answer)
        return TrainingText(ids, start, kind)


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _messages(values: Any, place: str) -> list[Message]:
    listed = isinstance(values, list) and len(values) >= 2
    check(listed, place, "messages", values, "a list of two messages or more")
    for number, message in enumerate(values, start=1):
        where = f"{place}, message {number}"
        check(isinstance(message, dict), where, "it", message, "an object")
        refuse_unknown(message, ["role", "content"], where)
        for name in ("role", "content"):
            check(name in message, where, name, None, "a text, not blank")
            text_of(message, name, where)
    role = values[-1]["role"]
    check(role == "assistant", place, "the role of the last message", role, "'assistant'")
    return list(values)


def _cut(text: TrainingText, max_tokens: int | None) -> TrainingText:
    if max_tokens is None or len(text.token_ids) <= max_tokens:
        return text
    return TrainingText(text.token_ids[:max_tokens], text.answer_start, text.kind)


def _place_of(text: TrainingText, seed: int) -> float:
    """Returns where in [0, 1) the prompt of a text falls."""
    digest = hashlib.blake2b(f"{seed}:".encode(), digest_size=8)
    digest.update(",".join(map(str, text.token_ids[: text.answer_start])).encode())
    return int.from_bytes(digest.digest()) / 2**64
