"""Text to token ids and back, and the chat template: what the pipeline needs of a tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from specrag.errors import InputError, ModelError

Message = Mapping[str, str]
"""One turn: ``{"role": "user", "content": "..."}``."""


class ModelFiles(Protocol):
    """Where a model lies; ``specrag.models.embedded.resolve`` makes one of a name."""

    @property
    def path(self) -> str:
        """Folder or hub name."""

    @property
    def gguf_file(self) -> str | None:
        """Name of the GGUF file in the folder, when it is one."""


class Tokenizer:
    """A transformers tokenizer behind the few verbs that specrag uses.

    Args:
        backend: A fast transformers tokenizer.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    @classmethod
    def load(cls, source: ModelFiles) -> Tokenizer:
        """Loads the tokenizer that belongs to a model.

        Args:
            source: Where the model lies.

        Raises:
            ModelError: There is none, or it cannot be read.
        """
        try:
            return cls(_load_backend(source))
        except Exception as error:  # readers of a damaged file raise what they like
            raise ModelError(
                f"cannot load a tokenizer from {source.path!r}: {first_line(error)}",
                hint="name an embedded model, a local folder, a .gguf file or a hub name",
            ) from error

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return len(self.backend)

    @property
    def eos_token_id(self) -> int | None:
        """The tokenizer's own end token, if it has one."""
        value = self.backend.eos_token_id
        return None if value is None else int(value)

    @property
    def has_chat_template(self) -> bool:
        """Whether messages have a format that the model was trained on."""
        return bool(self.backend.chat_template)

    @property
    def fingerprint(self) -> str:
        """Changes when the chat template or the vocabulary's size does."""
        text = f"{self.vocab_size}\n{self.backend.chat_template}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def vocabulary_fingerprint(self) -> str:
        """Changes when any token has another id; models that share a vocabulary share it.

        The chat template and the roles of special tokens do not count: they give no id a meaning.
        """
        ids: dict[str, int] = self.backend.get_vocab()
        tokens = sorted(ids, key=ids.__getitem__)
        text = json.dumps([tokens, [ids[token] for token in tokens]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text as it stands; special tokens in it are recognised.

        Args:
            text: Any text; nothing is added before or after it.
        """
        return list(self.backend.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of token ids, special tokens left out.

        Args:
            token_ids: Ids of this vocabulary.
        """
        return str(
            self.backend.decode(
                list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def chat_text(self, messages: Sequence[Message]) -> str:
        """Writes messages in the model's own chat format, ready for the assistant's turn.

        Args:
            messages: Turns with ``role`` and ``content``, oldest first.

        Raises:
            InputError: There is no message, one lacks a text, or the template refuses them.
        """
        if not messages:
            raise InputError("there is no message to answer")
        for message in messages:
            if not all(isinstance(message.get(key), str) for key in ("role", "content")):
                raise InputError(f"a message needs a text as role and content, got {message!r}")
        if not self.has_chat_template:
            # A base model has no format of its own; this one is common enough to be continued.
            turns = [f"{m['role'].capitalize()}: {m['content']}\n" for m in messages]
            return "".join(turns) + "Assistant:"
        try:
            return str(
                self.backend.apply_chat_template(
                    [dict(message) for message in messages],
                    tokenize=False,
                    add_generation_prompt=True,
                )
            )
        except Exception as error:  # templates raise whatever their author chose
            raise InputError(
                f"the model's chat template refuses these messages: {first_line(error)}",
                hint="use the roles system, user and assistant, taking turns",
            ) from error

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Returns the token ids of ``chat_text``.

        Args:
            messages: Turns, oldest first.
        """
        return self.encode(self.chat_text(messages))


def _load_backend(source: ModelFiles) -> Any:
    if not source.gguf_file and _is_generic(Path(source.path)):
        from transformers import PreTrainedTokenizerFast

        # What the automatic class would choose, after importing the configuration of every
        # architecture, which takes longer than the tokenizer itself.
        return PreTrainedTokenizerFast.from_pretrained(source.path)
    from transformers import AutoTokenizer

    options = {"gguf_file": source.gguf_file} if source.gguf_file else {}
    return AutoTokenizer.from_pretrained(source.path, **options)


def _is_generic(folder: Path) -> bool:
    """Whether a folder holds a tokenizer that is no more than its ``tokenizer.json``."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (
        (folder / "tokenizer.json").is_file()
        and isinstance(config, dict)
        and config.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
        and "auto_map" not in config
    )


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, or its type when it has none.

    Args:
        error: Any exception.
    """
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
