"""FeatureStore: the target's hidden states of texts, computed once and read from disk."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from tqdm import tqdm

from specrag.errors import ConfigError
from specrag.locking import exclusive
from specrag.models.target import TargetModel
from specrag.training.texts import TrainingText

_META = "features.json"
_DATA = "features.bin"
_INDEX = "texts.bin"
_LOCK = ".lock"
_RECORD = np.dtype([("digest", "V16"), ("tokens", "<i8")])
_BATCH_TOKENS = 2048
_SORTED = 256  # texts that are sorted by length together, so that a batch wastes little


class FeatureStore:
    """States of every token of every text, in bfloat16: half the size, and noise that trains well.

    A store that was stopped goes on where it was, and one that has other texts already takes the
    new ones beside them: a corpus may grow, and trainings on parts of it share one store. The
    states lie one text behind the other in one file; another names the texts in their order, and
    only what it names is there. One process at a time adds to a store; others may read it.

    Args:
        folder: Where it lies.
        target: Whose states they are.
        texts: The corpus.
        layers: What of the target, see ``TargetModel``.

    Raises:
        ConfigError: The folder holds the features of another target or of other layers.
    """

    def __init__(
        self,
        folder: Path,
        target: TargetModel,
        texts: Sequence[TrainingText],
        layers: Sequence[int],
    ) -> None:
        self.folder = folder
        self.layers = tuple(layers)
        self._stored = self.layers
        self._target = target
        self._texts = texts
        self._digests = [_digest(text) for text in texts]
        folder.mkdir(parents=True, exist_ok=True)
        self._check_meta()
        self._width = len(self._stored) * _width(target, self._stored)
        self._spans: dict[bytes, tuple[int, int]] = {}
        self._num_tokens = 0
        self._data: np.memmap | None = None
        self._read_index()

    @property
    def identity(self) -> str:
        """A string that changes with the texts and with the target's weights."""
        texts = hashlib.sha256(b"".join(self._digests)).hexdigest()
        return f"{self._target.fingerprint[:16]}-{texts[:16]}"

    @property
    def num_done(self) -> int:
        """Texts whose states are there."""
        return sum(digest in self._spans for digest in self._digests)

    def fill(self, progress: bool = False) -> None:
        """Computes what is missing; another process that fills the store is waited for.

        Args:
            progress: Whether to show a bar of tokens on standard error.

        Raises:
            InputError: The folder cannot be written to.
        """
        if self.num_done == len(self._texts):
            return
        busy, hint = "another training computes features in", "wait for it"
        with exclusive(self.folder, _LOCK, busy, hint, wait_seconds=math.inf):
            self._read_index()  # the other one may have added some
            self._drop_unnamed()
            missing = {
                digest: place
                for place, digest in enumerate(self._digests)
                if digest not in self._spans
            }
            places = list(missing.values())
            total = sum(len(text.token_ids) for text in self._texts)
            bar = tqdm(total=total, unit="token", desc="features", disable=not progress)
            with bar:
                bar.update(total - sum(len(self._texts[place].token_ids) for place in places))
                for first in range(0, len(places), _SORTED):
                    self._append(places[first : first + _SORTED], bar)

    def of(self, place: int) -> torch.Tensor:
        """Returns the states of a text, ``[tokens, layers, hidden]`` bfloat16.

        Args:
            place: Of the text in the corpus.
        """
        first, last = self._spans[self._digests[place]]
        if self._data is None or len(self._data) < last:
            self._data = self._mapped(self._num_tokens, "r")
        states = torch.from_numpy(np.array(self._data[first:last])).view(torch.bfloat16)
        states = states.view(last - first, len(self._stored), -1)
        return states[:, [self._stored.index(layer) for layer in self.layers]]

    def _append(self, places: Sequence[int], bar: tqdm[object]) -> None:
        """Computes some texts; they count once their names are on disk, behind their states."""
        lengths = [len(self._texts[place].token_ids) for place in places]
        ends = (self._num_tokens + np.cumsum(lengths, dtype=np.int64)).tolist()
        spans = {place: (end - n, end) for place, n, end in zip(places, lengths, ends, strict=True)}
        _resize(self.folder / _DATA, 2 * ends[-1] * self._width)
        data = self._mapped(ends[-1], "r+")
        for batch in _batches(self._texts, places):
            for place, states in zip(batch, self._computed(batch), strict=True):
                first, last = spans[place]
                data[first:last] = states
                bar.update(last - first)
        data.flush()
        with (self.folder / _INDEX).open("ab") as file:
            names = [self._digests[place] for place in places]
            np.array(list(zip(names, lengths, strict=True)), dtype=_RECORD).tofile(file)
        self._spans.update((self._digests[place], span) for place, span in spans.items())
        self._num_tokens = ends[-1]

    def _computed(self, batch: Sequence[int]) -> list[np.ndarray]:
        prompts = [tuple(self._texts[place].token_ids) for place in batch]
        cache = self._target.new_cache(len(prompts), max(map(len, prompts)))
        output = self._target.prefill(prompts, cache, 1, self._stored)
        found = []
        for row, prompt in enumerate(prompts):
            states = [output.features[layer][row, : len(prompt)] for layer in self._stored]
            joined = torch.cat(states, dim=-1).to(torch.bfloat16).cpu()
            found.append(joined.view(torch.uint16).numpy())
        return found

    def _read_index(self) -> None:
        """Reads which texts are there: whole records whose states are on disk."""
        path = self.folder / _INDEX
        num_whole = path.stat().st_size // _RECORD.itemsize if path.is_file() else 0
        records = np.fromfile(path, _RECORD, num_whole) if num_whole else np.empty(0, _RECORD)
        data = self.folder / _DATA
        room = data.stat().st_size // (2 * self._width) if data.is_file() else 0
        self._spans, self._num_tokens = {}, 0
        for digest, tokens in records:
            if self._num_tokens + tokens > room:
                break
            first, self._num_tokens = self._num_tokens, self._num_tokens + int(tokens)
            self._spans[bytes(digest)] = (first, self._num_tokens)

    def _drop_unnamed(self) -> None:
        """Cuts off what a run that was stopped has left behind the last whole text."""
        _resize(self.folder / _INDEX, len(self._spans) * _RECORD.itemsize)
        _resize(self.folder / _DATA, 2 * self._num_tokens * self._width)

    def _mapped(self, num_tokens: int, mode: Literal["r", "r+"]) -> np.memmap:
        return np.memmap(self.folder / _DATA, np.uint16, mode, shape=(num_tokens, self._width))

    def _check_meta(self) -> None:
        """Makes sure that the folder holds what is wanted; it may hold further layers."""
        path = self.folder / _META
        wanted = {"target": self._target.fingerprint, "layers": list(self.layers)}
        if not path.is_file():
            _write(path, json.dumps(wanted))
            return
        known = json.loads(path.read_text(encoding="utf-8"))
        self._stored = tuple(known["layers"])
        others = [] if known["target"] == wanted["target"] else ["target"]
        others += [] if set(self.layers) <= set(self._stored) else ["layers"]
        for key in others:
            raise ConfigError(
                f"{self.folder} holds the features of other {key}: {known[key]!r}, "
                f"not {wanted[key]!r}",
                hint="name another folder, or remove this one",
            )


def _digest(text: TrainingText) -> bytes:
    return hashlib.sha256(np.array(text.token_ids, dtype=np.int64).tobytes()).digest()[:16]


def _write(path: Path, text: str) -> None:
    """Writes a note in one step: it is the old one or the new one."""
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _resize(path: Path, size: int) -> None:
    if not path.is_file() or path.stat().st_size != size:
        with path.open("ab") as file:
            file.truncate(size)


def _width(target: TargetModel, layers: Sequence[int]) -> int:
    cache = target.new_cache(1, 2)
    return int(target.prefill([[0]], cache, 1, layers[:1]).features[layers[0]].shape[-1])


def _batches(texts: Sequence[TrainingText], places: Sequence[int]) -> list[list[int]]:
    """Groups texts of like length, so that padding is small and memory bounded."""
    batches: list[list[int]] = []
    for place in sorted(places, key=lambda place: len(texts[place].token_ids)):
        length = len(texts[place].token_ids)
        if not batches or (len(batches[-1]) + 1) * length > _BATCH_TOKENS:
            batches.append([])
        batches[-1].append(place)
    return batches
