"""RAG that drafts before it decodes and thinks before it searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specrag.decoding.generator import SpeculativeGenerator
    from specrag.decoding.sampling import SamplingParams
    from specrag.rag.build import SpecRAG

__version__ = "0.1.0"
__all__ = ["SamplingParams", "SpecRAG", "SpeculativeGenerator", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import specrag` alone must stay light (no torch, no faiss).
    if name == "SpecRAG":
        from specrag.rag.build import SpecRAG

        return SpecRAG
    if name == "SpeculativeGenerator":
        from specrag.decoding.generator import SpeculativeGenerator

        return SpeculativeGenerator
    if name == "SamplingParams":
        from specrag.decoding.sampling import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'specrag' has no attribute {name!r}")
