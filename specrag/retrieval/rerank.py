"""The reranker contract (found passages, ordered anew by a closer look) and its implementations.

torch and sentence-transformers are imported when a model is first run, not before.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specrag.errors import ConfigError, InputError, ModelError
from specrag.loading import model_loading
from specrag.retrieval.document import Passage, ScoredPassage
from specrag.retrieval.encoder_folder import EncoderFolder, find_encoder_folder
from specrag.retrieval.terms import content_words

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

_HEAD = "ForSequenceClassification"  # ends the name of an architecture that scores its input


class Reranker(ABC):
    """Scores passages that a search found, each together with the query.

    All methods may be called from several threads. A score depends on query and passage alone,
    up to the rounding that a different batch can bring.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for people and for messages."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes whenever the scores would; cheap, and needs no model loaded."""

    @abstractmethod
    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Scores passages, higher is better.

        Args:
            query: The query.
            passages: The passages; may be none.
        """

    def rerank(self, query: str, passages: Sequence[ScoredPassage], k: int) -> list[ScoredPassage]:
        """Orders passages anew.

        Args:
            query: The query.
            passages: What a search found, best first.
            k: Most passages to return, at least 1.

        Returns:
            The best passages with their new scores, best first; equal scores in the order given.

        Raises:
            InputError: k is below 1.
        """
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        scores = self.score(query, [found.passage for found in passages])
        scored = [
            ScoredPassage(found.passage, score)
            for found, score in zip(passages, scores, strict=True)
        ]
        return sorted(scored, key=lambda found: -found.score)[:k]

    def warm_up(self) -> None:  # noqa: B027 - most rerankers have nothing to load
        """Loads what the first call would load; may run in a thread of its own."""


class WordOverlapReranker(Reranker):
    """Scores the share of the query's content words that a passage holds: no model is needed."""

    @property
    def name(self) -> str:
        """``word-overlap``."""
        return "word-overlap"

    @property
    def fingerprint(self) -> str:
        """Version of the algorithm."""
        return "word-overlap-v1"

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Counts shared words; see the contract."""
        asked = content_words(query)
        held = [asked & content_words(_text(passage)) for passage in passages]
        return [len(words) / max(1, len(asked)) for words in held]


class CrossEncoderReranker(Reranker):
    """Runs a cross-encoder of sentence-transformers, loaded when it is first used.

    The model reads query and passage together. Its score is what the model declares: mostly a
    logit, or a number from 0 to 1.

    Args:
        path_or_name: A model folder, or a name on the model hub such as
            ``BAAI/bge-reranker-base``.
        name: Name for people; the folder's or hub name by default.
        batch_size: Pairs in one forward pass.
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

    @property
    def fingerprint(self) -> str:
        """A digest of the model folder."""
        return f"cross-encoder:{self._folder.fingerprint}"

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Runs the model on all pairs, batched by length; see the contract."""
        if not passages:
            return []
        texts = [_text(passage) for passage in passages]
        distinct = list(dict.fromkeys(texts))  # rounding must not tell equal texts apart
        with self._lock:
            scores = self._model.predict(
                [(query, text) for text in distinct],
                batch_size=self._batch_size,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        if not np.isfinite(scores).all():
            raise ModelError(f"the reranker {self._name!r} gives scores that are no numbers")
        known = dict(zip(distinct, scores.tolist(), strict=True))
        return [known[text] for text in texts]

    def warm_up(self) -> None:
        """Imports the library and loads the weights."""
        with self._lock:
            _ = self._model

    @cached_property
    def _folder(self) -> EncoderFolder:
        try:
            folder = find_encoder_folder(self._path_or_name)
        except ModelError as error:
            raise ModelError(
                f"cannot use the reranker {self._name!r}: {error.message}",
                hint="give the folder of a cross-encoder, or go online and try again",
            ) from error
        self._check_kind(folder.path)
        return folder

    def _check_kind(self, path: Path) -> None:
        """Refuses other models: the library would give them a head of random weights."""
        if (path / "modules.json").is_file():
            settings = _read(path / "config_sentence_transformers.json")
            kinds = [str(settings.get("model_type", "SentenceTransformer"))]
        else:
            kinds = _read(path / "config.json").get("architectures") or ["a model of unknown kind"]
        if not any(kind == "CrossEncoder" or kind.endswith(_HEAD) for kind in kinds):
            raise ModelError(
                f"the model {self._name!r} is no cross-encoder but {', '.join(kinds)}",
                hint="take a model that scores a pair of texts, such as BAAI/bge-reranker-base; "
                "an encoder gives vectors instead",
            )

    @cached_property
    def _model(self) -> CrossEncoder:
        # Imported here because it takes seconds.
        from sentence_transformers import CrossEncoder

        path = str(self._folder.path)
        try:
            with model_loading():
                model = CrossEncoder(path, device=self._device, local_files_only=True)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise ModelError(
                f"cannot load the reranker {self._name!r} from {path!r}: {error}",
                hint="check that the folder is complete, or fetch the model again",
            ) from error
        if model.num_labels != 1:
            raise ModelError(
                f"the reranker {self._name!r} gives {model.num_labels} scores for a pair, not one",
                hint="take a cross-encoder that was trained to rank",
            )
        return model


def _text(passage: Passage) -> str:
    return f"{passage.heading}\n{passage.text}" if passage.heading else passage.text


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except ValueError as error:
        raise ModelError(f"{str(path)!r} is not valid JSON: {error}") from error
    return found if isinstance(found, dict) else {}
