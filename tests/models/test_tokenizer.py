"""The tokenizer: chat text, errors, and round trips of the embedded one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.errors import InputError, ModelError
from specrag.models.embedded import ModelSource, resolve
from specrag.models.tiny import tiny_tokenizer
from specrag.models.tokenizer import Message, Tokenizer, _is_generic, first_line

CHAT: list[Message] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "why"},
]
TEXTS = {
    "ascii": "The gate decides; 3 of 4 passages were used (75%).",
    "chinese": "草稿模型先猜词,目标模型再验证。",
    "emoji": "fine 🙂 family 👨‍👩‍👧 flag 🇩🇪",
    "code": "def add(a, b):\n\treturn a +  b\n\n\n# done\r\n",
    "accents": "naïve café, Ærøskøbing, e\u0301",
    "spaces": "  two  spaces \t and a tab\n\n",
    "symbols": "∑ x² ≤ ∞ → ∀ε>0",
}


def without_template() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.backend.chat_template = None
    return tokenizer


def test_messages_are_written_in_the_models_own_format() -> None:
    tokenizer = tiny_tokenizer()

    assert tokenizer.has_chat_template
    assert tokenizer.chat_text(CHAT) == "<s>be brief<u>hi<a>yes<u>why<a>"
    assert tokenizer.encode_chat(CHAT) == tokenizer.encode("<s>be brief<u>hi<a>yes<u>why<a>")


def test_a_base_model_gets_a_format_that_it_can_continue() -> None:
    tokenizer = without_template()

    assert not tokenizer.has_chat_template
    expected = "System: be brief\nUser: hi\nAssistant: yes\nUser: why\nAssistant:"
    assert tokenizer.chat_text(CHAT) == expected


@pytest.mark.parametrize("make", [tiny_tokenizer, without_template])
@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "no message to answer"),
        ([{"role": "user"}], "needs a text as role and content"),
        ([{"content": "hi"}], "needs a text as role and content"),
        ([CHAT[0], {}], "needs a text as role and content"),
        ([{"role": "user", "content": None}], "got {'role': 'user', 'content': None}"),
    ],
)
def test_incomplete_messages_are_input_errors(
    make: Callable[[], Tokenizer], messages: list[Message], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        make().chat_text(messages)


def test_the_words_of_a_template_that_refuses_are_passed_on() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend.chat_template = "{{ raise_exception('roles must take turns') }}"

    with pytest.raises(InputError, match="refuses these messages: roles must take turns") as caught:
        tokenizer.chat_text(CHAT)
    assert "system, user and assistant" in str(caught.value.hint)


def test_marks_are_recognised_in_text_and_left_out_of_it() -> None:
    tokenizer = tiny_tokenizer()

    assert tokenizer.encode("<u>a<eos>") == [2, 5, 0]
    assert tokenizer.decode([2, 5, 0]) == "a"
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


def test_the_fingerprint_follows_template_and_vocabulary() -> None:
    prints = {
        tiny_tokenizer().fingerprint,
        without_template().fingerprint,
        tiny_tokenizer(65).fingerprint,
    }

    assert len(prints) == 3
    assert tiny_tokenizer().fingerprint in prints


def test_a_tokenizer_without_an_end_token_says_so() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend.eos_token = None

    assert tokenizer.eos_token_id is None


def test_a_saved_tokenizer_loads_as_it_was(tmp_path: Path) -> None:
    tiny_tokenizer().backend.save_pretrained(tmp_path)
    loaded = Tokenizer.load(ModelSource(str(tmp_path), None, "tiny"))

    assert loaded.chat_text(CHAT) == tiny_tokenizer().chat_text(CHAT)
    assert loaded.encode("<u>abc") == tiny_tokenizer().encode("<u>abc")


@pytest.mark.parametrize("content", [None, "{", json.dumps({"model": 5})])
def test_a_folder_without_a_readable_tokenizer_is_a_model_error(
    content: str | None, tmp_path: Path
) -> None:
    tiny_tokenizer().backend.save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.unlink()
    if content is not None:
        file.write_text(content)

    with pytest.raises(ModelError, match="cannot load a tokenizer from") as caught:
        Tokenizer.load(ModelSource(str(tmp_path), None, "broken"))
    assert str(tmp_path) in caught.value.message
    assert "local folder" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  spaced \n"), "spaced"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_first_line_of_an_error_is_never_empty(error: Exception, line: str) -> None:
    assert first_line(error) == line


@pytest.fixture(scope="session")
def embedded(embedded_target_path: Path) -> Tokenizer:
    return Tokenizer.load(resolve(str(embedded_target_path)))


@pytest.mark.embedded
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_embedded_tokenizer_gives_back_every_text(embedded: Tokenizer, text: str) -> None:
    ids = embedded.encode(text)

    assert embedded.decode(ids) == text
    assert all(0 <= token < embedded.vocab_size for token in ids)


@pytest.mark.embedded
def test_the_embedded_tokenizer_has_the_format_of_its_model(embedded: Tokenizer) -> None:
    text = embedded.chat_text(CHAT[:2])

    assert text == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = embedded.encode_chat(CHAT[:2])
    assert ids == embedded.encode(text)
    assert ids.count(embedded.encode("<|im_start|>")[0]) == 3
    assert embedded.eos_token_id == embedded.encode("<|im_end|>")[0]
    assert "im_start" not in embedded.decode(ids)


@pytest.mark.embedded
def test_a_generic_tokenizer_is_what_the_automatic_class_would_load(
    embedded_target_path: Path,
) -> None:
    from transformers import AutoTokenizer

    source = ModelSource(str(embedded_target_path), None, "m")
    ours, automatic = Tokenizer.load(source).backend, AutoTokenizer.from_pretrained(source.path)
    assert type(ours) is type(automatic)
    assert ours.chat_template == automatic.chat_template
    assert ours.special_tokens_map == automatic.special_tokens_map
    text = "<|im_start|>user\n12 + 7, 你好 🎉\n    return x<|im_end|>\n"
    assert ours.encode(text) == automatic.encode(text)


@pytest.mark.parametrize(
    "config", ["{", "[]", '{"tokenizer_class": "LlamaTokenizer"}', '{"auto_map": {}}']
)
def test_any_other_tokenizer_is_left_to_the_automatic_class(tmp_path: Path, config: str) -> None:
    tiny_tokenizer().backend.save_pretrained(tmp_path)
    assert _is_generic(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    assert not _is_generic(tmp_path)


def test_the_vocabulary_fingerprint_follows_the_tokens_and_nothing_else(tmp_path: Path) -> None:
    plain = tiny_tokenizer().vocabulary_fingerprint
    tiny_tokenizer().backend.save_pretrained(tmp_path)
    swapped, grown = tiny_tokenizer(), tiny_tokenizer()
    tokens = swapped.backend.get_vocab()
    tokens["a"], tokens["b"] = tokens["b"], tokens["a"]
    swapped.backend.get_vocab = lambda: tokens
    grown.backend.add_tokens(["<new>"])

    assert without_template().vocabulary_fingerprint == plain
    saved = Tokenizer.load(ModelSource(str(tmp_path), None, "saved"))
    assert saved.vocabulary_fingerprint == plain
    others = [swapped, grown, tiny_tokenizer(65)]
    assert len({plain, *(other.vocabulary_fingerprint for other in others)}) == 4


def test_the_vocabulary_fingerprint_is_the_same_in_every_run() -> None:
    assert tiny_tokenizer().vocabulary_fingerprint == "e8eb82335bfac58d"
