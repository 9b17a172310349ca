"""One answer of a training corpus, as a line of its file: written by us, checked when read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from specrag.errors import InputError, suggest


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """An answer of the target to one user message.

    Attributes:
        kind: Where the prompt came from.
        temperature: At which the answer was sampled; 0 is greedy.
        prompt: The user's message, as text.
        response_ids: Tokens of the answer, the end token included when it has one.
        finished: Whether it ended by itself.
        seed: Of its draws; None where nobody wrote it down.
    """

    kind: str
    temperature: float
    prompt: str
    response_ids: tuple[int, ...]
    finished: bool
    seed: int | None = None

    def to_json(self) -> str:
        """Returns its line, without the line break."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, value: Mapping[str, Any], place: str, vocab_size: int) -> CorpusRow:
        """Reads a row.

        Args:
            value: The JSON object of its line.
            place: Of the line, for messages.
            vocab_size: Tokens of the target.

        Raises:
            InputError: A field is unknown, missing or out of its bounds.
        """
        names = [field.name for field in fields(cls)]
        refuse_unknown(value, names, place)
        missing = [name for name in names[:-1] if name not in value]
        if missing:
            raise InputError(f"{place} has no {missing[0]!r}", hint=f"a row has {', '.join(names)}")
        temperature, seed = value["temperature"], value.get("seed")
        good = type(temperature) in (int, float) and 0 <= temperature < math.inf
        check(good, place, "temperature", temperature, "a number of 0 or more")
        check(isinstance(value["finished"], bool), place, "finished", value["finished"], "a truth")
        check(seed is None or type(seed) is int, place, "seed", seed, "a whole number")
        return cls(
            text_of(value, "kind", place),
            float(temperature),
            text_of(value, "prompt", place),
            _token_ids(value["response_ids"], place, vocab_size),
            value["finished"],
            seed,
        )


def refuse_unknown(value: Mapping[str, Any], names: list[str], place: str) -> None:
    """Refuses a row with a field that means nothing here.

    Args:
        value: The row.
        names: The fields that it may have.
        place: Of the row, for messages.

    Raises:
        InputError: It has another one.
    """
    unknown = next((name for name in value if name not in names), None)
    if unknown is not None:
        raise InputError(f"{place} has an unknown field {unknown!r}; {suggest(unknown, names)}")


def text_of(value: Mapping[str, Any], name: str, place: str) -> str:
    """Returns a field that holds a text which is not blank.

    Args:
        value: The row.
        name: Of the field.
        place: Of the row, for messages.

    Raises:
        InputError: It holds none.
    """
    text = value[name]
    check(isinstance(text, str) and bool(text.strip()), place, name, text, "a text, not blank")
    return str(text)


def check(holds: bool, place: str, name: str, value: object, allowed: str) -> None:
    """Refuses a row whose field is not as it must be.

    Args:
        holds: Whether it is.
        place: Of the row.
        name: Of the field.
        value: What it holds.
        allowed: What it may hold, in words.

    Raises:
        InputError: It is not.
    """
    if not holds:
        raise InputError(f"{place}: {name} must be {allowed}, got {value!r:.80}")


def _token_ids(values: Any, place: str, vocab_size: int) -> tuple[int, ...]:
    listed = isinstance(values, list) and bool(values)
    check(listed, place, "response_ids", values, "a list of token ids, at least one")
    for token in values:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise InputError(
                f"{place}: response_ids holds {token!r:.40}; the target has the tokens 0 to "
                f"{vocab_size - 1}",
                hint="train on text of the same target, or of one with the same tokenizer",
            )
    return tuple(values)
