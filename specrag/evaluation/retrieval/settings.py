"""What a retrieval run does: everything that its figures depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specrag.errors import ConfigError
from specrag.evaluation.datasets.item import EvalDataset
from specrag.evaluation.metrics.passages import Gain, chosen_gain
from specrag.retrieval.retriever import Retriever

CUT = 10
"""Documents that nDCG and the reciprocal rank look at, as is usual."""


@dataclass(frozen=True, slots=True)
class RetrievalSettings:
    """Settings of a run.

    Attributes:
        k: Numbers of documents that recall, precision and success are reported at.
        gain: What a grade is worth in nDCG; ``linear`` as in ``trec_eval``.
        seed: Of the sample of questions and of intervals.
    """

    k: tuple[int, ...] = (1, 5, 10, 100)
    gain: Gain = "linear"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.k:
            raise ConfigError("k names no number of documents", hint="such as 1,5,10,100")
        for number in self.k:
            if number < 1:
                raise ConfigError(f"k must be at least 1, got {number}")
        if len(set(self.k)) < len(self.k):
            raise ConfigError(f"a k is named twice: {', '.join(map(str, self.k))}")
        chosen_gain(self.gain)

    @property
    def depth(self) -> int:
        """Documents that are looked for."""
        return max(CUT, *self.k)


def configuration(
    retrievers: Mapping[str, Retriever], dataset: EvalDataset, settings: RetrievalSettings
) -> dict[str, Any]:
    """Returns all that the figures of a run depend on, as plain data.

    Args:
        retrievers: Those that are asked, by name.
        dataset: The questions, sampled already.
        settings: Of the run.
    """
    return {
        "dataset": {
            "name": dataset.name,
            "format": dataset.format,
            "sha256": dataset.sha256,
            "num_items": len(dataset.items),
        },
        "settings": {**asdict(settings), "k": list(settings.k)},
        "depth": settings.depth,
        "retrievers": {
            name: {"index": retriever.name, "fingerprint": retriever.fingerprint}
            for name, retriever in retrievers.items()
        },
    }
