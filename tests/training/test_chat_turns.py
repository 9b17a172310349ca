from __future__ import annotations

import pytest

from specrag.errors import ConfigError
from specrag.models.tiny import tiny_tokenizer
from specrag.training.chat_turns import chat_turns, special_token_ids

EOS, SYSTEM, USER, ASSISTANT = range(4)
CHAT = (
    "{% if messages[0]['role'] != 'system' %}<s>be kind<eos>{% endif %}"
    "{% for m in messages %}<{{ m['role'][0] }}> {{ m['content'] | trim }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<a> {% endif %}"
)
TURNS = (  # as Mistral writes them: an answer has an end, a question none but the next turn
    "{% for m in messages %}{% if m['role'] == 'user' %}<u>{{ m['content'] }}<a>"
    "{% else %}{{ m['content'] }}<eos>{% endif %}{% endfor %}"
)


def test_the_special_tokens_are_those_marked_so() -> None:
    assert special_token_ids(tiny_tokenizer()) == {EOS, SYSTEM, USER, ASSISTANT}


def test_a_turn_without_an_end_is_ended_by_the_next_one() -> None:
    turns = chat_turns(tiny_tokenizer())
    assert turns.user_prefix == (USER,)
    assert turns.user_end == ASSISTANT
    assert turns.answer_end == EOS  # not <u>, which opens the next question


@pytest.mark.parametrize(
    ("template", "prefix", "end"), [(CHAT, "<s>be kind<eos><u>", EOS), (TURNS, "<u>", ASSISTANT)]
)
def test_prefix_and_ends_come_from_the_template(template: str, prefix: str, end: int) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend.chat_template = template
    turns = chat_turns(tokenizer)
    assert list(turns.user_prefix) == tokenizer.encode(prefix)  # no space at its end
    assert turns.user_end == end
    assert turns.answer_end == EOS


def test_without_a_template_a_text_ends_the_turn() -> None:
    tokenizer = tiny_tokenizer(80)
    tokenizer.backend.chat_template = None
    turns = chat_turns(tokenizer)
    assert tokenizer.decode(turns.user_prefix) == "User:"
    assert turns.user_end is None
    assert turns.user_end_text == "\nAssistant:"
    assert turns.answer_end == EOS


@pytest.mark.parametrize(
    "template",
    ["{% for m in messages %}{{ m['content'] * 2 }}{% endfor %}", "{{ messages | length }}"],
)
def test_a_template_that_hides_or_repeats_a_message_is_refused(template: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend.chat_template = template
    with pytest.raises(ConfigError, match="instead of once"):
        chat_turns(tokenizer)
