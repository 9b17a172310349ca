"""The encoder contract (texts to vectors) and its implementations.

torch and sentence-transformers are imported when a model is first run, not before.
"""

from __future__ import annotations

import hashlib
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from specrag.errors import ConfigError, ModelError
from specrag.loading import model_loading
from specrag.retrieval.encoder_folder import EncoderFolder, find_encoder_folder
from specrag.retrieval.pooled_model import PooledModel

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors: TypeAlias = npt.NDArray[np.float32]

_WORD = re.compile(r"\w+|[^\w\s]")
_FAR_ABOVE_ANY_LIMIT = 1_000_000


class Encoder(ABC):
    """Turns texts into vectors whose inner product is their similarity.

    All methods may be called from several threads. Results depend on the text alone, up to the
    rounding that a different batch can bring.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for people and for messages."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Most tokens of a text, as ``count_tokens`` counts, that are encoded in full."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes whenever the vectors would; cheap, and needs no model loaded."""

    @abstractmethod
    def encode_documents(self, texts: Sequence[str], *, progress: bool = False) -> Vectors:
        """Encodes texts that are to be found.

        Args:
            texts: The texts; what exceeds ``max_tokens`` does not count.
            progress: Whether to show a progress bar on standard error.

        Returns:
            Vectors of length 1, [num_texts, dimension].
        """

    @abstractmethod
    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encodes texts that are searched for.

        Args:
            texts: The queries.

        Returns:
            Vectors of length 1, [num_texts, dimension].
        """

    @abstractmethod
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Counts the tokens of each text, without special tokens; needs no model loaded."""

    def warm_up(self) -> None:  # noqa: B027 - most encoders have nothing to load
        """Loads what the first text would load; may run in a thread of its own."""


class HashingEncoder(Encoder):
    """Hashes words and word pairs into a vector: no model, the same on every machine.

    It finds texts that share words with the query, which is enough for tests and examples.

    Args:
        dimension: Length of a vector.
        max_tokens: Most words of a text that count.
    """

    def __init__(self, dimension: int = 64, max_tokens: int = 512) -> None:
        if dimension < 1 or max_tokens < 1:
            raise ConfigError(
                f"dimension and max_tokens must be at least 1, got {dimension} and {max_tokens}"
            )
        self._dimension = dimension
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """``hashing-`` and the dimension."""
        return f"hashing-{self._dimension}"

    @property
    def dimension(self) -> int:
        """As it was given."""
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """As it was given."""
        return self._max_tokens

    @property
    def fingerprint(self) -> str:
        """Version of the algorithm and its sizes."""
        return f"hashing-v1:{self._dimension}:{self._max_tokens}"

    def encode_documents(self, texts: Sequence[str], *, progress: bool = False) -> Vectors:
        """Hashes each text; see the contract."""
        vectors = [self._encode(text) for text in tqdm(texts, "encoding", disable=not progress)]
        return np.array(vectors, dtype=np.float32).reshape(len(texts), self._dimension)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """The same as for documents."""
        return self.encode_documents(texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Counts words and punctuation marks."""
        return [sum(1 for _ in _WORD.finditer(text)) for text in texts]

    def _encode(self, text: str) -> Vectors:
        words = _WORD.findall(text.lower())[: self._max_tokens]
        vector = np.zeros(self._dimension, dtype=np.float32)
        for feature in [*words, *map(" ".join, zip(words, words[1:], strict=False))]:
            number = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest())
            vector[(number >> 1) % self._dimension] += 1.0 if number & 1 else -1.0
        if not vector.any():  # no words, or features that cancel out
            vector[0] = 1.0
        return vector / np.linalg.norm(vector)


class SentenceTransformerEncoder(Encoder):
    """Runs a sentence-transformers model, loaded when the first text is encoded.

    The plain kind of them, which most are, runs without the library; see ``PooledModel``.

    Args:
        path_or_name: A model folder, or a name on the model hub.
        name: Name for people; the folder's or hub name by default.
        batch_size: Texts in one forward pass.
        device: Torch device; the library's choice by default.
    """

    def __init__(
        self,
        path_or_name: str | Path,
        *,
        name: str | None = None,
        batch_size: int = 32,
        device: str | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        path = Path(path_or_name).expanduser()
        self._path_or_name = str(path_or_name)
        self._name = name or (path.resolve().name if path.is_dir() else self._path_or_name)
        self._batch_size = batch_size
        self._device = device
        # Tokenizers keep per-call settings, so two threads must not use one at the same time.
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        """As it was given, or the name of the model folder."""
        return self._name

    @cached_property
    def dimension(self) -> int:
        """From the configuration; runs the model only if that is not plain."""
        if self._folder.dimension:
            return self._folder.dimension
        return int(self._encode_batch(["a"], lambda model: model.encode_document).shape[1])

    @cached_property
    def max_tokens(self) -> int:
        """The model's limit less special tokens and prompt."""
        length = self._folder.max_sequence_length or self._model.max_seq_length
        tokenizer = self._folder.tokenizer or self._model.tokenizer
        num_special = tokenizer.num_special_tokens_to_add(False)
        num_prompt = max(self.count_tokens(self._folder.prompts), default=0)
        return int(length or _FAR_ABOVE_ANY_LIMIT) - num_special - num_prompt

    @property
    def fingerprint(self) -> str:
        """A digest of the model folder."""
        return self._folder.fingerprint

    def encode_documents(self, texts: Sequence[str], *, progress: bool = False) -> Vectors:
        """Encodes with the model's document prompt; see the contract."""
        return self._encode(texts, lambda model: model.encode_document, progress)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encodes with the model's query prompt; see the contract."""
        return self._encode(texts, lambda model: model.encode_query, progress=False)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Counts with the tokenizer alone, if the folder holds a fast one."""
        if self._folder.tokenizer is not None:
            found = self._folder.tokenizer.encode_batch(list(texts), add_special_tokens=False)
            return [len(encoding) for encoding in found]
        with self._lock:
            tokenize = self._model.tokenizer
            return [len(tokenize(text, add_special_tokens=False)["input_ids"]) for text in texts]

    @cached_property
    def _folder(self) -> EncoderFolder:
        return find_encoder_folder(self._path_or_name)

    def warm_up(self) -> None:
        """Imports the library and loads the weights."""
        with self._lock:
            _ = self._pooled or self._model

    @cached_property
    def _pooled(self) -> PooledModel | None:
        """The model, where it is of the plain kind; None for all others."""
        if not self._folder.pooling:
            return None
        with self._loading():
            return PooledModel(self._folder, self._device)

    @cached_property
    def _model(self) -> SentenceTransformer:
        # Imported here because it takes seconds, and counting tokens does not need it.
        from sentence_transformers import SentenceTransformer

        with self._loading():
            path = str(self._folder.path)
            return SentenceTransformer(path, device=self._device, local_files_only=True)

    @contextmanager
    def _loading(self) -> Iterator[None]:
        path = str(self._folder.path)
        try:
            with model_loading():
                yield
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise ModelError(
                f"cannot load the encoder {self._name!r} from {path!r}: {error}",
                hint="check that the folder is complete, or fetch the model again",
            ) from error

    def _encode(
        self,
        texts: Sequence[str],
        method: Callable[[SentenceTransformer], Callable[..., Any]],
        progress: bool,
    ) -> Vectors:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        # Texts of similar length share a batch, so that little padding is computed.
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        with tqdm(total=len(texts), desc="encoding", disable=not progress) as bar:
            for first in range(0, len(texts), self._batch_size):
                batch = order[first : first + self._batch_size]
                vectors[batch] = self._encode_batch([texts[index] for index in batch], method)
                bar.update(len(batch))
        return vectors

    def _encode_batch(
        self, texts: list[str], method: Callable[[SentenceTransformer], Callable[..., Any]]
    ) -> Any:
        with self._lock:
            if self._pooled is not None:
                return self._pooled.encode(texts)
            return method(self._model)(
                texts,
                batch_size=self._batch_size,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
