"""Usage and timings that agree with each other, and the JSON shape, pinned."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from specrag.decoding.sampling import SamplingParams
from specrag.gate.policy import RetrievalGate
from specrag.models.tokenizer import Tokenizer
from specrag.rag.pipeline import Pipeline
from specrag.retrieval.retriever import IndexRetriever

MakePipeline = Callable[..., Pipeline]
GateOf = Callable[[str], RetrievalGate]
QUESTION = "What does a draft tree merge?"
PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
every_zone = pytest.mark.parametrize(
    "zone", ["confident", "needed", "unsure-used", "unsure-dropped"]
)
every_drafter = pytest.mark.parametrize("drafter", ["suffix", "none"])


@every_zone
@every_drafter
def test_usage_counts_what_was_used(
    make_pipeline: MakePipeline,
    gate_of: GateOf,
    tokenizer: Tokenizer,
    retriever: IndexRetriever,
    zone: str,
    drafter: str,
) -> None:
    pipeline = make_pipeline(gate=gate_of(zone), drafter=drafter, params=PARAMS)
    answer = pipeline.ask(QUESTION)
    usage = answer.usage
    found = retriever.retrieve(QUESTION, 2) if answer.gate.retrieve else []
    prompts = pipeline.prompts
    prompt = prompts.with_passages(QUESTION, found) if found else prompts.closed_book(QUESTION)

    assert usage.prompt_tokens == len(tokenizer.encode_chat(prompt.messages))
    assert usage.completion_tokens == PARAMS.max_tokens == answer.speculation.num_tokens
    assert usage.context_tokens == prompt.context_tokens
    assert usage.lookups == (zone != "confident")
    assert (usage.context_tokens > 0) is answer.gate.retrieve
    assert usage.context_tokens < usage.prompt_tokens
    if answer.gate.retrieve:
        # A round may emit more than the one token that was still missing.
        assert 8 <= usage.draft_tokens <= 8 + 5
        assert usage.draft_tokens == answer.gate.signals["num_tokens"]
    else:
        assert usage.draft_tokens == 0


@every_zone
@every_drafter
def test_timings_agree_with_each_other(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str, drafter: str
) -> None:
    answer = make_pipeline(gate=gate_of(zone), drafter=drafter, params=PARAMS).ask(QUESTION)
    spent = answer.timings

    assert spent.decode_ms == spent.draft_ms + spent.verify_ms > 0
    assert (spent.lookup_ms > 0) is (zone != "confident")
    assert (spent.gate_ms > 0) is answer.gate.retrieve
    parts = spent.prefill_ms + spent.decode_ms + spent.gate_ms + spent.lookup_ms
    assert 0 < parts <= spent.total_ms
    later = answer.usage.completion_tokens - 1
    assert spent.tokens_per_second == pytest.approx(1e3 * later / spent.decode_ms)


def test_an_answer_of_one_token_has_no_speed(make_pipeline: MakePipeline) -> None:
    answer = make_pipeline(params=SamplingParams(max_tokens=1)).ask(QUESTION)
    assert (answer.timings.decode_ms, answer.timings.tokens_per_second) == (0.0, 0.0)
    assert answer.usage.completion_tokens == 1
    assert answer.finish_reason == "length"


def test_an_answer_names_what_made_it(
    make_pipeline: MakePipeline, retriever: IndexRetriever
) -> None:
    pipeline = make_pipeline()
    answers = [pipeline.ask(QUESTION) for _ in range(2)]
    for answer in answers:
        assert (answer.model, answer.drafter, answer.pipeline) == ("tiny-5", "suffix", "test")
        assert (answer.index, answer.index_version) == ("four", retriever.index_version)
    assert answers[0].request_id != answers[1].request_id


def test_the_json_shape(make_pipeline: MakePipeline, gate_of: GateOf) -> None:
    answer = make_pipeline(gate=gate_of("needed")).ask(QUESTION)
    content = answer.to_dict()

    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert list(content) == [
        "answer",
        "citations",
        "gate",
        "usage",
        "speculation",
        "timings",
        "finish_reason",
        "model",
        "pipeline",
        "index",
        "index_version",
        "request_id",
    ]
    assert content["answer"] == answer.text
    assert {tuple(citation) for citation in content["citations"]} == {
        ("n", "document", "passage", "page", "line", "start", "end", "score", "quote")
    }
    assert list(content["gate"]) == [
        "retrieve",
        "reason",
        "p_without",
        "p_with",
        "threshold",
        "zone",
        "signals",
        "fingerprint",
    ]
    assert list(content["usage"]) == [
        "prompt_tokens",
        "completion_tokens",
        "context_tokens",
        "lookups",
        "draft_tokens",
    ]
    assert list(content["timings"]) == [
        "draft_ms",
        "verify_ms",
        "lookup_ms",
        "prefill_ms",
        "decode_ms",
        "gate_ms",
        "total_ms",
        "tokens_per_second",
    ]


def test_the_counters_of_speculation(make_pipeline: MakePipeline) -> None:
    answer = make_pipeline(params=PARAMS).ask(QUESTION)
    content, stats = answer.to_dict()["speculation"], answer.speculation

    length = round(stats.mean_acceptance_length, 4)
    assert content == {**dataclasses.asdict(stats), "mean_acceptance_length": length}
    assert content["drafters"]["suffix"]["num_drafts"] == stats.num_drafts
    assert stats.num_drafts > 0
    content["num_accepted_tokens_per_pos"].append(9)  # a copy: the answer stays as it is
    assert answer.to_dict()["speculation"] != content
