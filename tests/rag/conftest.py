"""A pipeline of real parts that needs no model: toy target, hashing encoder, small FAISS index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.gate.calibration import Calibration
from specrag.gate.policy import CalibratedGate, RetrievalGate
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.models.tokenizer import Tokenizer
from specrag.rag.config import PromptConfig
from specrag.rag.pipeline import Pipeline
from specrag.rag.prompt import PromptBuilder
from specrag.retrieval.build import build_index
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.retriever import IndexRetriever, open_index

CORPUS = {
    "bread.md": "# Bread\n\nBake the bread for forty minutes. Let it cool before it is cut.\n",
    "gate.md": "# Gate\n\nThe gate decides whether documents are needed. It reads the draft.\n",
    "ships.md": "# Ships\n\nThe ship left the harbour at dawn. It carried grain and salt.\n",
    "tree.md": "# Tree\n\nA draft tree merges the proposals of several drafters.\n",
}
VOCABULARY = 96


@pytest.fixture(scope="session")
def target() -> HuggingFaceTarget:
    """A target of random weights that repeats itself now and then, so that drafts are accepted."""
    return tiny_target(5, vocab_size=VOCABULARY, max_context=2048, peakedness=4.0)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A tokenizer of single characters."""
    return tiny_tokenizer(VOCABULARY)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four documents."""
    root = tmp_path_factory.mktemp("documents") / "corpus"
    root.mkdir()
    for name, text in CORPUS.items():
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="session")
def retriever(corpus: Path) -> Iterator[IndexRetriever]:
    """A FAISS index over the corpus, on disk; its counters go on from test to test."""
    encoder = HashingEncoder(256)
    place = corpus.parent / "index"
    build_index(IndexRecipe("four", corpus, "any", chunk_size=20, chunk_overlap=5), encoder, place)
    opened = open_index(place, encoder)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def gate_of() -> Callable[[str], RetrievalGate]:
    """A calibrated gate that puts every draft into the named zone.

    ``unsure-used`` and ``unsure-dropped`` say what its lookup leads to.
    """
    borders = {
        "confident": (0.4, 0.3, 0.0),
        "needed": (0.7, 0.6, 0.0),
        "unsure-used": (0.7, 0.3, -1.0),
        "unsure-dropped": (0.7, 0.3, 1.5),
    }

    def make(zone: str) -> RetrievalGate:
        confident_above, needed_below, min_score = borders[zone]
        return CalibratedGate(
            Calibration(
                fitted_on={"target": "tiny"},
                features=("margin",),
                mean=(0.0,),
                scale=(1.0,),
                weights=(0.0,),  # every draft gets 0.5
                intercept=0.0,
                confident_above=confident_above,
                needed_below=needed_below,
                min_score=min_score,
                num_labels=90,
            )
        )

    return make


@pytest.fixture(scope="session")
def make_pipeline(
    target: HuggingFaceTarget, tokenizer: Tokenizer, retriever: IndexRetriever
) -> Callable[..., Pipeline]:
    """Makes a pipeline over the index; any part can be given."""

    def make(
        *,
        drafter: str | Drafter = "suffix",
        gate: RetrievalGate | None = None,
        model: HuggingFaceTarget = target,
        prompt: PromptConfig | None = None,
        context_tokens: int = 400,
        params: SamplingParams | None = None,
        **options: Any,
    ) -> Pipeline:
        generator = SpeculativeGenerator(model, tokenizer, drafter, SpeculationConfig(5))
        return Pipeline(
            generator,
            PromptBuilder(prompt or PromptConfig(system="Be brief."), tokenizer, context_tokens),
            options.pop("retriever", retriever),
            gate,
            params=params or SamplingParams(max_tokens=24),
            **{"k": 2, "draft_tokens": 8, "name": "test", **options},
        )

    return make
