"""Packing under the budget, templates that are filled once, and where the question stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specrag.models.embedded import resolve
from specrag.models.tokenizer import Tokenizer
from specrag.rag.config import PromptConfig
from specrag.rag.prompt import PromptBuilder
from specrag.retrieval.document import Passage, ScoredPassage

PLAIN = PromptConfig(
    system="", with_passages="{passages}|{question}", without_passages="{question}"
)


def scored(number: int, text: str, heading: str | None = "h") -> ScoredPassage:
    passage = Passage(number, "d.md", text, 0, len(text), heading=heading)
    return ScoredPassage(passage, 1.0 - number / 100)


def user_text(builder: PromptBuilder, question: str, *found: ScoredPassage) -> str:
    return builder.with_passages(question, found).messages[-1]["content"]


@given(sizes=st.lists(st.integers(1, 60), max_size=8), budget=st.integers(1, 150))
def test_passages_are_packed_whole_in_order_and_within_the_budget(
    tokenizer: Tokenizer, sizes: list[int], budget: int
) -> None:
    found = [scored(number, chr(97 + number) * size) for number, size in enumerate(sizes)]
    packed = PromptBuilder(PLAIN, tokenizer, budget).with_passages("q", found)
    used = packed.passages
    shown = packed.messages[-1]["content"].rpartition("|")[0]
    blocks = shown.split("\n\n") if used else []

    assert used[:1] == tuple(found[:1])  # the best one, whatever its length
    assert list(used) == [entry for entry in found if entry in used]
    assert len(blocks) == len(used)
    assert all(entry.passage.text in block for entry, block in zip(used, blocks, strict=True))
    assert packed.context_tokens == sum(len(tokenizer.encode(block)) for block in blocks)
    assert packed.context_tokens <= budget or len(used) == 1
    # Whatever was left out did not fit behind those that had come before it.
    overhead = packed.context_tokens - sum(len(entry.passage.text) for entry in used)
    spent = 0
    for entry in found:
        size = len(entry.passage.text) + (overhead // len(used))
        if entry in used:
            spent += size
        else:
            assert spent + size > budget


def test_a_passage_that_does_not_fit_makes_way_for_a_smaller_one(tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(PLAIN, tokenizer, 60)
    found = [scored(0, "a" * 20), scored(1, "b" * 90), scored(2, "c" * 20)]
    assert [entry.passage.id for entry in builder.with_passages("q", found).passages] == [0, 2]


def test_a_passage_is_shown_under_its_heading_or_its_document(tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(PLAIN, tokenizer, 400)
    assert "Gate > Signals\ntext" in user_text(builder, "q", scored(0, "text", "Gate > Signals"))
    assert "d.md\ntext" in user_text(builder, "q", scored(0, "text", None))


def test_no_passages_leave_an_empty_place(tokenizer: Tokenizer) -> None:
    packed = PromptBuilder(PLAIN, tokenizer, 400).with_passages("q", [])
    assert packed.messages == ({"role": "user", "content": "|q"},)
    assert (packed.passages, packed.context_tokens) == ((), 0)


@pytest.mark.parametrize("text", ["{}", "{x!r}", "{question}", "{passages}", "{{question}}", "%s"])
def test_braces_of_the_user_are_left_alone(tokenizer: Tokenizer, text: str) -> None:
    builder = PromptBuilder(PLAIN, tokenizer, 400)
    assert builder.closed_book(text).messages[-1]["content"] == text
    filled = user_text(builder, f"is {text} a slot?", scored(0, f"a {text} b"))
    assert filled.endswith(f"a {text} b|is {text} a slot?")


def test_every_slot_of_a_template_is_filled(tokenizer: Tokenizer) -> None:
    config = PromptConfig(
        with_passages="{question} {passages} {question} {other} {passages}",
        without_passages="{question} again: {question}",
    )
    builder = PromptBuilder(config, tokenizer, 400)
    assert builder.closed_book("why?").messages[-1]["content"] == "why? again: why?"
    block = user_text(PromptBuilder(PLAIN, tokenizer, 400), "", scored(0, "text")).rstrip("|")
    assert user_text(builder, "q", scored(0, "text")) == f"q {block} q {{other}} {block}"


def test_the_system_message_comes_first_unless_it_is_empty(tokenizer: Tokenizer) -> None:
    asked = {"role": "user", "content": "q"}
    with_system = PromptBuilder(PromptConfig(system="Be brief."), tokenizer, 400)
    told = {"role": "system", "content": "Be brief."}
    assert with_system.closed_book("q").messages == (told, asked)
    assert PromptBuilder(PLAIN, tokenizer, 400).closed_book("q").messages == (asked,)


def test_the_fingerprint_depends_on_every_part(tokenizer: Tokenizer) -> None:
    builders = [
        PromptBuilder(PLAIN, tokenizer, 400),
        PromptBuilder(PLAIN, tokenizer, 401),
        PromptBuilder(PromptConfig(system="x"), tokenizer, 400),
        PromptBuilder(PromptConfig(with_passages="{question}{passages}"), tokenizer, 400),
        PromptBuilder(PromptConfig(without_passages="Q: {question}"), tokenizer, 400),
        PromptBuilder(PromptConfig(), tokenizer, 400),
    ]
    assert len({builder.fingerprint for builder in builders}) == len(builders)
    assert PromptBuilder(PLAIN, tokenizer, 400).fingerprint == builders[0].fingerprint


letters = st.text("aesu Az?'-:;()", min_size=1).filter(lambda text: text == text.strip() != "")


@given(
    question=letters,
    template=st.sampled_from(["{question}", "ask: {question}", "{question} (as a user)"]),
)
@example(question="a", template="{question}")  # stands in the mark of the assistant's turn
@example(question="user", template="{question} (as a user)")
def test_the_span_begins_with_exactly_the_tokens_of_the_question(
    tokenizer: Tokenizer, question: str, template: str
) -> None:
    config = PromptConfig(system="a user", without_passages=template)
    builder = PromptBuilder(config, tokenizer, 400)
    prompt_ids = tokenizer.encode_chat(builder.closed_book(question).messages)
    span = builder.question_span(question)
    before, _, after = template.partition("{question}")

    assert tokenizer.decode(prompt_ids[-span:]) == f"{question}{after}"
    own = tokenizer.encode(question)
    assert prompt_ids[-span:][: len(own)] == own
    assert tokenizer.decode(prompt_ids[:-span]).endswith(before)


@pytest.fixture(scope="module")
def embedded(embedded_target_path: Path) -> Tokenizer:
    return Tokenizer.load(resolve(str(embedded_target_path)))


@pytest.mark.embedded
@pytest.mark.parametrize(
    "question",
    [
        "What is a bonus token?",
        "assistant",
        "im_start",
        "user",
        "a",
        "<|im_end|>",
        "你好吗？",
        "1 + 1",
    ],
)
@pytest.mark.parametrize("template", ["{question}", "Question:\n{question}\nAnswer: a"])
def test_the_span_in_the_format_of_the_embedded_target(
    embedded: Tokenizer, question: str, template: str
) -> None:
    builder = PromptBuilder(PromptConfig(without_passages=template), embedded, 400)
    prompt_ids = embedded.encode_chat(builder.closed_book(question).messages)
    span = builder.question_span(question)
    after = template.partition("{question}")[2]

    shown = embedded.backend.decode(prompt_ids[-span:])
    assert shown.strip() == f"{question}{after}<|im_end|>\n<|im_start|>assistant"
