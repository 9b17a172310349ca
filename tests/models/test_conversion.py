from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import ModelError
from specrag.models import conversion
from specrag.models.conversion import STEPS, convert

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEXTS = [
    "plain ASCII text",
    "中文，混合 text",
    "emoji 🙂👩‍🔬 and naïve",
    "def f(x):\n    if x:\n        return 12\n",
    "a list:\n\n1. one\n\n2.  two",
    "",
]


def _byte_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_gguf(path: Path) -> None:
    """Writes a random Llama of two layers with a byte-level tokenizer."""
    import numpy
    from gguf import GGUFWriter

    tokens = [*SPECIAL, *_byte_alphabet(), "ĊĊ"]
    hidden, heads, wide = 32, 2, 64
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(2)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["Ċ Ċ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    random = numpy.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(tokens), hidden),
        "output_norm.weight": (hidden,),
    }
    for layer in range(2):
        block = f"blk.{layer}"
        shapes |= {f"{block}.{name}_norm.weight": (hidden,) for name in ("attn", "ffn")}
        shapes |= {
            f"{block}.attn_{name}.weight": (hidden, hidden) for name in ("q", "k", "v", "output")
        }
        shapes |= {f"{block}.ffn_{name}.weight": (wide, hidden) for name in ("gate", "up")}
        shapes |= {f"{block}.ffn_down.weight": (hidden, wide)}
    for name, shape in shapes.items():
        values = random.normal(0, 0.1, shape) if len(shape) > 1 else numpy.ones(shape)
        writer.add_tensor(name, values.astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    write_gguf(folder / "tiny.gguf")
    return folder


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("converted") / "tiny"
    convert(source, "tiny.gguf", target, lambda _: None)
    return target


def test_the_weights_are_bfloat16_safetensors(converted: Path) -> None:
    from safetensors import safe_open

    with safe_open(converted / "model.safetensors", "pt") as weights:
        types = {str(weights.get_tensor(name).dtype) for name in weights.keys()}  # noqa: SIM118
    assert types == {"torch.bfloat16"}
    config = json.loads((converted / "config.json").read_text(encoding="utf-8"))
    assert "quantization_config" not in config
    assert config["dtype"] == "bfloat16"


def test_the_weights_are_those_of_the_file(source: Path, converted: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32).state_dict()
    with conversion._quiet():
        original = AutoModelForCausalLM.from_pretrained(
            source, gguf_file="tiny.gguf", dtype=torch.bfloat16
        ).state_dict()
    assert made.keys() == original.keys()
    assert all(torch.equal(made[name], original[name].float()) for name in made)


def test_the_special_tokens_and_the_ends_are_kept(converted: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL)) == [0, 1, 2]
    assert tokenizer("<|im_start|>a<|im_end|>").input_ids[::2] == [1, 2]
    assert tokenizer.chat_template == "{{ messages[0]['content'] }}"
    generation = json.loads((converted / "generation_config.json").read_text(encoding="utf-8"))
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (2, 2)


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_encoding(text: str, converted: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.parametrize("text", [text for text in TEXTS if "1. one" not in text])
def test_tokens_are_those_of_the_file(text: str, source: Path, converted: Path) -> None:
    from transformers import AutoTokenizer

    with conversion._quiet():
        original = AutoTokenizer.from_pretrained(source, gguf_file="tiny.gguf")
    assert AutoTokenizer.from_pretrained(converted)(text).input_ids == original(text).input_ids


def test_digits_are_split_off_first_as_the_file_says(converted: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize("a\n\n12") == ["a", "ĊĊ", "1", "2"]


def test_each_step_is_told_and_nothing_else(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.utils import logging

    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    reached: list[int] = []
    convert(source, "tiny.gguf", tmp_path / "made", reached.append)
    assert reached == list(range(1, STEPS + 1))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize("kept", [0, 100, 20_000])
def test_a_damaged_file_is_refused(kept: int, source: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes((source / "tiny.gguf").read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"'bad.gguf' could not be converted"):
        convert(tmp_path, "bad.gguf", tmp_path / "made", lambda _: None)


def test_a_saved_tokenizer_that_disagrees_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = conversion._load_tokenizer

    def loses_a_token(folder: Path, gguf_file: str) -> Any:
        tokenizer = load(folder, gguf_file)
        monkeypatch.setattr(type(tokenizer), "save_pretrained", lambda self, path: other(path))
        return tokenizer

    def other(path: Path) -> None:
        monkeypatch.undo()
        tokenizer = load(source, "tiny.gguf")
        tokenizer.backend_tokenizer.pre_tokenizer = None
        tokenizer.save_pretrained(path)

    monkeypatch.setattr(conversion, "_load_tokenizer", loses_a_token)
    with pytest.raises(ModelError, match="tokenizer disagrees"):
        convert(source, "tiny.gguf", tmp_path / "made", lambda _: None)


def test_weights_that_are_not_finite_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = conversion._load_network

    def breaks(folder: Path, gguf_file: str, tokenizer: Any) -> Any:
        network = load(folder, gguf_file, tokenizer)
        network.model.norm.weight.data.fill_(float("nan"))
        return network

    monkeypatch.setattr(conversion, "_load_network", breaks)
    with pytest.raises(ModelError, match="not finite"):
        convert(source, "tiny.gguf", tmp_path / "made", lambda _: None)


def test_a_full_disk_is_an_os_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    def full(folder: Path, gguf_file: str, tokenizer: Any) -> Any:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(conversion, "_load_network", full)
    with pytest.raises(OSError, match="No space left"):
        convert(source, "tiny.gguf", tmp_path / "made", lambda _: None)
