"""What Prometheus can read: answers, tokens, drafts, decisions, and how full the server is."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from specrag.rag.answer import Answer
from specrag.rag.pipeline import Pipeline
from specrag.retrieval.retriever import IndexRetriever

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_STAGES = ("gate", "lookup", "prefill", "decode", "total")


class ServerMetrics:
    """Counts what a server answers.

    The counters of speculation have the names that vLLM gave them, behind ``specrag_``.

    Args:
        rag: What is served: its queue and index are looked at when somebody reads.
    """

    def __init__(self, rag: Pipeline) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_State(rag))
        self._seconds = Histogram(
            "specrag_stage_seconds",
            "Time of each stage of an answer.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._answers = self._counter("answers", "Answers given.", "finish_reason")
        self._decisions = self._counter(
            "gate_decisions", "Decisions of the gate.", "zone", "lookup"
        )
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self._tokens = self._counter("generation_tokens", "Tokens of answers.")
        self._lookups = self._counter("lookups", "Times that the index was asked.")
        self._drafts = self._counter("spec_decode_num_drafts", "Drafts verified.")
        self._drafted = self._counter("spec_decode_num_draft_tokens", "Tokens drafted.", "drafter")
        self._accepted = self._counter(
            "spec_decode_num_accepted_tokens", "Drafted tokens accepted.", "drafter"
        )

    def count(self, answer: Answer) -> None:
        """Counts one answer.

        Args:
            answer: It is done.
        """
        spent = answer.timings
        for stage in _STAGES:
            self._seconds.labels(stage).observe(getattr(spent, f"{stage}_ms") / 1e3)
        self._answers.labels(answer.finish_reason).inc()
        self._decisions.labels(answer.gate.zone, str(answer.gate.retrieve).lower()).inc()
        self._prompt_tokens.inc(answer.usage.prompt_tokens)
        self._tokens.inc(answer.usage.completion_tokens)
        self._lookups.inc(answer.usage.lookups)
        self._drafts.inc(answer.speculation.num_drafts)
        for name, counters in answer.speculation.drafters.items():
            self._drafted.labels(name).inc(counters.num_draft_tokens)
            self._accepted.labels(name).inc(counters.num_accepted_tokens)

    def text(self) -> bytes:
        """Returns all of it in the format of Prometheus."""
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"specrag_{name}", about, labels, registry=self.registry)


class _State(Collector):
    """What is read and not counted."""

    def __init__(self, rag: Pipeline) -> None:
        self._rag = rag

    def collect(self) -> Iterable[GaugeMetricFamily]:
        engine, retriever = self._rag.engine, self._rag.retriever
        yield _gauge("requests_running", "Questions being decoded.", engine.num_running)
        yield _gauge("requests_waiting", "Questions waiting for a place.", engine.num_waiting)
        size = retriever.index.num_passages if isinstance(retriever, IndexRetriever) else 0
        yield _gauge("index_passages", "Passages of the index.", size)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"specrag_{name}", about, value=value)
