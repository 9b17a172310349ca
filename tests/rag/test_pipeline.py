"""The promise of the gate: it picks a branch, and never changes the text of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specrag.decoding.generator import Generation
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError, InputError, ModelError
from specrag.gate.policy import FixedGate, RetrievalGate
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target
from specrag.rag.answer import Answer
from specrag.rag.pipeline import Pipeline
from specrag.retrieval.retriever import IndexRetriever

MakePipeline = Callable[..., Pipeline]
GateOf = Callable[[str], RetrievalGate]

QUESTION = "How long must bread bake?"
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0.9, top_p=0.95, seed=11)
PENALISED = SamplingParams(max_tokens=24, repetition_penalty=1.3)
SHORT = SamplingParams(max_tokens=3)  # ends before the gate has seen all that it wants to
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED, "penalised": PENALISED, "short": SHORT}
every_params = pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
every_drafter = pytest.mark.parametrize("drafter", ["suffix", "prompt_lookup", "none"])


def said(answer: Answer) -> tuple[object, ...]:
    """All of an answer that the branch alone decides."""
    usage = answer.usage
    return (
        answer.text,
        answer.citations,
        answer.finish_reason,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.context_tokens,
    )


def searches(retriever: IndexRetriever) -> tuple[int, int]:
    return retriever.num_lookups, retriever.index.num_searches


@every_drafter
@every_params
def test_never_is_plain_generation(
    make_pipeline: MakePipeline, drafter: str, params: SamplingParams
) -> None:
    pipeline = make_pipeline(drafter=drafter)
    answer = pipeline.ask(QUESTION, mode="never", params=params)
    messages = pipeline.prompts.closed_book(QUESTION).messages
    alone = pipeline.generator.generate(messages, params)

    assert isinstance(alone, Generation)
    assert answer.text == alone.text
    assert answer.usage.completion_tokens == len(alone.token_ids)
    assert answer.finish_reason == alone.finish_reason
    assert (answer.citations, answer.usage.lookups) == ((), 0)


@every_drafter
@every_params
@pytest.mark.parametrize(
    ("zone", "same_as", "num_lookups"),
    [
        ("confident", "never", 0),
        ("unsure-dropped", "never", 1),
        ("unsure-used", "always", 1),
        ("needed", "always", 1),
    ],
)
def test_auto_gives_the_text_of_the_branch_that_it_took(
    make_pipeline: MakePipeline,
    gate_of: GateOf,
    retriever: IndexRetriever,
    drafter: str,
    params: SamplingParams,
    zone: str,
    same_as: str,
    num_lookups: int,
) -> None:
    pipeline = make_pipeline(drafter=drafter, gate=gate_of(zone))
    fixed = pipeline.ask(QUESTION, mode=same_as, params=params)
    lookups, index_searches = searches(retriever)
    answer = pipeline.ask(QUESTION, mode="auto", params=params)

    assert said(answer) == said(fixed)
    assert answer.gate.zone == zone.partition("-")[0]
    assert answer.gate.retrieve is (same_as == "always")
    assert answer.usage.lookups == num_lookups
    assert searches(retriever) == (lookups + num_lookups, index_searches + num_lookups)


def test_the_branches_differ_and_drafts_are_accepted(make_pipeline: MakePipeline) -> None:
    """Otherwise the tests above could not fail."""
    pipeline = make_pipeline()
    texts = {
        (mode, name): pipeline.ask(QUESTION, mode=mode, params=PARAMS[name])
        for mode in ("never", "always")
        for name in ("greedy", "sampled")
    }
    assert len({answer.text for answer in texts.values()}) == 4
    assert all(answer.text for answer in texts.values())
    accepted = [answer.speculation.num_accepted_tokens for answer in texts.values()]
    assert sum(accepted) > 0


def test_a_stop_string_across_the_draft_s_end_is_found(
    make_pipeline: MakePipeline, gate_of: GateOf
) -> None:
    pipeline = make_pipeline(drafter="none", gate=gate_of("confident"), draft_tokens=8)
    whole = pipeline.ask(QUESTION, mode="never", params=GREEDY).text
    stop = whole[6:11]
    params = SamplingParams(max_tokens=24, ignore_eos=True, stop=(stop,))
    answer = pipeline.ask(QUESTION, params=params)

    assert answer.text == whole[: whole.index(stop)]
    assert answer.finish_reason == "stop"
    assert said(answer) == said(pipeline.ask(QUESTION, mode="never", params=params))


def test_a_sampled_answer_without_a_seed_goes_on_from_its_own_draft(
    make_pipeline: MakePipeline, gate_of: GateOf
) -> None:
    params = SamplingParams(max_tokens=24, ignore_eos=True, temperature=1.0)
    pipeline = make_pipeline(gate=gate_of("confident"))
    assert len({pipeline.ask(QUESTION, params=params).text for _ in range(3)}) > 1


@pytest.mark.parametrize("question", ["Hello!", "thanks a lot", "你好"])
def test_a_greeting_is_not_looked_up(
    make_pipeline: MakePipeline, gate_of: GateOf, retriever: IndexRetriever, question: str
) -> None:
    before = searches(retriever)
    pipeline = make_pipeline(gate=gate_of("needed"))
    answer = pipeline.ask(question)

    assert (answer.gate.zone, answer.gate.retrieve) == ("fixed", False)
    assert searches(retriever) == before
    assert pipeline.ask(question, mode="always").gate.retrieve  # the user's word comes first


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
def test_without_an_index_nothing_is_looked_up(make_pipeline: MakePipeline, mode: str) -> None:
    pipeline = make_pipeline(retriever=None)
    answer = pipeline.ask(QUESTION, mode=mode)

    assert answer.gate.retrieve is False
    assert "no index" in answer.gate.reason
    assert (answer.index, answer.index_version, answer.usage.lookups) == ("", "", 0)
    assert answer.text == make_pipeline().ask(QUESTION, mode="never").text


def test_without_a_gate_every_question_is_looked_up(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(gate=None)
    answer = pipeline.ask(QUESTION)
    assert answer.gate.zone == "fixed"
    assert "No gate is configured" in answer.gate.reason
    assert said(answer) == said(pipeline.ask(QUESTION, mode="always"))


def test_a_gate_that_reads_no_signals_costs_no_draft(make_pipeline: MakePipeline) -> None:
    answer = make_pipeline(gate=FixedGate(True, "Always.")).ask(QUESTION)
    assert (answer.usage.draft_tokens, answer.timings.gate_ms) == (0, 0.0)


def test_signals_say_whether_the_documents_know_the_words(
    make_pipeline: MakePipeline, retriever: IndexRetriever
) -> None:
    before = searches(retriever)
    pipeline = make_pipeline()
    known = pipeline.signals_of("When did the ship leave the harbour?").term_coverage
    unknown = pipeline.signals_of("Why do zebras gallop?").term_coverage

    assert 1.0 >= known > 0.5 > unknown == 0.0
    assert searches(retriever) == before
    assert make_pipeline(retriever=None).signals_of(QUESTION).term_coverage == 0.0


def test_the_mode_of_the_pipeline_is_the_default(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(mode="never")
    assert pipeline.ask(QUESTION).usage.lookups == 0
    assert pipeline.ask(QUESTION, mode="always").usage.lookups == 1


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_passages_are_looked_up(make_pipeline: MakePipeline, k: int) -> None:
    *_, found = make_pipeline(mode="always", k=k).explain(QUESTION)
    assert len(found) == k


def test_blanks_around_a_question_do_not_count(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    for mode in ("never", "always"):
        padded = pipeline.ask(f" \n{QUESTION}\t", mode=mode)
        assert said(padded) == said(pipeline.ask(QUESTION, mode=mode))


@pytest.mark.parametrize("question", ["", " \n\t"])
def test_a_blank_question_is_refused(make_pipeline: MakePipeline, question: str) -> None:
    pipeline = make_pipeline()
    for method in (pipeline.ask, pipeline.stream, pipeline.explain, pipeline.signals_of):
        with pytest.raises(InputError, match="the question is blank"):
            method(question)


@pytest.mark.parametrize("k", [0, -1])
def test_a_bad_k_is_refused_before_the_first_event(make_pipeline: MakePipeline, k: int) -> None:
    with pytest.raises(InputError, match=f"k must be at least 1, got {k}"):
        make_pipeline().stream(QUESTION, k=k)


@pytest.mark.parametrize("mode", ["sometimes", "", "Auto"])
def test_a_bad_mode_is_refused_before_the_first_event(
    make_pipeline: MakePipeline, mode: str
) -> None:
    with pytest.raises(ConfigError, match="unknown mode.*allowed: always, auto, never"):
        make_pipeline().stream(QUESTION, mode=mode)
    with pytest.raises(ConfigError, match="unknown mode"):
        make_pipeline(mode=mode)


@pytest.fixture(scope="module")
def cramped() -> HuggingFaceTarget:
    """A target that holds the closed-book prompt and hardly more."""
    return tiny_target(5, vocab_size=96, max_context=64)


def test_a_prompt_that_does_not_fit_is_refused_before_the_first_event(
    make_pipeline: MakePipeline, cramped: HuggingFaceTarget
) -> None:
    pipeline = make_pipeline(model=cramped)
    with pytest.raises(InputError, match="the prompt has .* tokens") as caught:
        next(pipeline.stream(QUESTION, mode="always"))
    assert "retrieve fewer passages" in (caught.value.hint or "")

    endless = SamplingParams(max_tokens=200, ignore_eos=True)
    answer = pipeline.ask(QUESTION, mode="never", params=endless)  # the engine is free again
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == cramped.max_context
    assert answer.finish_reason == "length"


def test_a_retrieved_answer_that_does_not_fit_is_refused_after_the_draft(
    make_pipeline: MakePipeline, cramped: HuggingFaceTarget, gate_of: GateOf
) -> None:
    pipeline = make_pipeline(model=cramped, gate=gate_of("needed"))
    with pytest.raises(InputError, match="the prompt has .* tokens"):
        next(pipeline.stream(QUESTION))
    assert pipeline.ask(QUESTION, mode="never").text


@pytest.mark.parametrize("fails", [False, True])
def test_warming_up_loads_the_encoder_once_and_never_fails(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    pipeline = make_pipeline()
    calls: list[str] = []

    def warm_up() -> None:
        calls.append("loaded")
        if fails:
            raise ModelError("no weights")

    assert isinstance(pipeline.retriever, IndexRetriever)
    monkeypatch.setattr(pipeline.retriever.encoder, "warm_up", warm_up)
    pipeline.warm_up()
    assert calls == ["loaded"]


def test_without_an_index_there_is_nothing_to_warm_up(make_pipeline: MakePipeline) -> None:
    make_pipeline(retriever=None).warm_up()
