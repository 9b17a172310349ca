"""What a benchmark of vector indexes measures."""

from __future__ import annotations

from dataclasses import dataclass

from specrag.errors import ConfigError
from specrag.retrieval.vector_factory import VectorSettings

SIZES = (10_000, 100_000, 1_000_000)
FACTORIES = ("flat", "hnsw", "ivf-pq")


@dataclass(frozen=True, slots=True)
class VectorBenchmarkSettings:
    """What is measured.

    Attributes:
        sizes: Numbers of vectors, each at least 1.
        factories: Names or FAISS factory strings, as ``VectorSettings`` takes them.
        dimension: Length of the vectors.
        k: How many neighbours a query asks for.
        num_queries: How many queries are asked one after the other.
        rescore: As in ``VectorSettings``.
        nprobe: As in ``VectorSettings``.
        ef_search: As in ``VectorSettings``.
        seed: Of the vectors.
    """

    sizes: tuple[int, ...] = SIZES
    factories: tuple[str, ...] = FACTORIES
    dimension: int = 384
    k: int = 10
    num_queries: int = 200
    rescore: int = VectorSettings().rescore
    nprobe: int | None = None
    ef_search: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("dimension", "k", "num_queries"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.sizes or min(self.sizes) < self.k:
            raise ConfigError(f"sizes must be at least k={self.k}, got {list(self.sizes)}")
        if not self.factories:
            raise ConfigError("no factory is named", hint=f"such as {', '.join(FACTORIES)}")
        for factory in self.factories:
            self.vectors(factory)

    def vectors(self, factory: str) -> VectorSettings:
        """Returns how the vectors of one arm are kept and searched.

        Args:
            factory: Of the arm.
        """
        return VectorSettings(
            factory, nprobe=self.nprobe, ef_search=self.ef_search, rescore=self.rescore
        )
