"""FeatureStore: the target's hidden states of a corpus, computed once and read from disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.training.texts import TrainingText

_META = "features.json"
_DATA = "features.bin"
_DONE = "done.txt"
_BATCH_TOKENS = 2048
_SORTED = 256  # texts that are sorted by length together, so that a batch wastes little


class FeatureStore:
    """States of every token of every text, in bfloat16: half the size, and noise that trains well.

    A store that was stopped goes on where it was.

    Args:
        folder: Where it lies.
        target: Whose states they are.
        texts: The corpus, in this order.
        layers: What of the target, see ``TargetModel``.

    Raises:
        ConfigError: The folder holds the features of another corpus, target or layers.
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
        lengths = [len(text.token_ids) for text in texts]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._width = _width(target, layers)
        self._meta = {"target": target.fingerprint, "texts": _digest(texts)}
        folder.mkdir(parents=True, exist_ok=True)
        self._check_meta()
        self._data = np.memmap(self._open(), np.uint16, "r+", shape=self._shape)

    @property
    def identity(self) -> str:
        """A string that changes with the texts and with the target's weights."""
        return "-".join(value[:16] for value in self._meta.values())

    @property
    def num_done(self) -> int:
        """Texts whose states are there."""
        path = self.folder / _DONE
        text = path.read_text().strip() if path.is_file() else ""
        return int(text) if text.isdecimal() else 0

    def fill(self, progress: bool = False) -> None:
        """Computes what is missing.

        Args:
            progress: Whether to show a bar of tokens on standard error.
        """
        total, first = int(self._starts[-1]), self.num_done
        bar = tqdm(total=total, unit="token", desc="features", disable=not progress)
        with bar:
            bar.update(int(self._starts[first]))
            while first < len(self._texts):
                last = min(first + _SORTED, len(self._texts))
                for batch in _batches(self._texts, range(first, last)):
                    self._compute(batch)
                    bar.update(sum(len(self._texts[place].token_ids) for place in batch))
                self._data.flush()
                _write(self.folder / _DONE, str(last))
                first = last

    def of(self, place: int) -> torch.Tensor:
        """Returns the states of a text, ``[tokens, layers, hidden]`` bfloat16.

        Args:
            place: Of the text in the corpus.
        """
        rows = self._data[self._starts[place] : self._starts[place + 1]]
        states = torch.from_numpy(np.array(rows)).view(torch.bfloat16)
        states = states.view(len(states), len(self._stored), self._width)
        return states[:, [self._stored.index(layer) for layer in self.layers]]

    def _compute(self, batch: Sequence[int]) -> None:
        prompts = [tuple(self._texts[place].token_ids) for place in batch]
        cache = self._target.new_cache(len(prompts), max(map(len, prompts)))
        output = self._target.prefill(prompts, cache, 1, self._stored)
        for row, place in enumerate(batch):
            states = [output.features[layer][row, : len(prompts[row])] for layer in self._stored]
            joined = torch.cat(states, dim=-1).to(torch.bfloat16).cpu().view(torch.uint16)
            self._data[self._starts[place] : self._starts[place + 1]] = joined.numpy()

    @property
    def _shape(self) -> tuple[int, int]:
        return int(self._starts[-1]), len(self._stored) * self._width

    def _open(self) -> Path:
        path = self.folder / _DATA
        size = 2 * self._shape[0] * self._shape[1]
        if not path.is_file() or path.stat().st_size != size:
            (self.folder / _DONE).unlink(missing_ok=True)
            with path.open("wb") as file:
                file.truncate(size)
        return path

    def _check_meta(self) -> None:
        """Makes sure that the folder holds what is wanted; it may hold further layers."""
        path = self.folder / _META
        if not path.is_file():
            content = {**self._meta, "layers": list(self.layers)}
            _write(path, json.dumps(content))
            return
        known = json.loads(path.read_text(encoding="utf-8"))
        self._stored = tuple(known["layers"])
        for key, value in self._meta.items():
            if known.get(key) != value:
                raise self._other(key, known.get(key), value)
        if not set(self.layers) <= set(self._stored):
            raise self._other("layers", known["layers"], list(self.layers))

    def _other(self, key: str, known: object, wanted: object) -> ConfigError:
        return ConfigError(
            f"{self.folder} holds the features of other {key}: {known!r}, not {wanted!r}",
            hint="name another folder, or remove this one",
        )


def _digest(texts: Sequence[TrainingText]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(np.array(text.token_ids, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    """Writes a note in one step: it is the old one or the new one."""
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


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
