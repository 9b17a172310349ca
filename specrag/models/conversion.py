"""From a GGUF file to a transformers folder with bfloat16 safetensors, which loads in no time."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from specrag.errors import ModelError
from specrag.loading import model_loading

STEPS = 4
_SAMPLES = (
    "<|im_start|>user\nWhat is a draft?<|im_end|>\n",
    "  naïve 中文 🙂 and a list:\n\n1. first\n\n2. second",
    "def add(a, b):\n    return a +  12\n",
)


def convert(source: Path, gguf_file: str, target: Path, reached: Callable[[int], None]) -> None:
    """Converts a model and checks that the result loads.

    Args:
        source: Folder of the GGUF file.
        gguf_file: Its name.
        target: Folder to write; created.
        reached: Told how many of the ``STEPS`` are done.

    Raises:
        ModelError: The file cannot be read, or what was written does not load.
        OSError: It cannot be written.
    """
    try:
        with _quiet():
            tokenizer = _load_tokenizer(source, gguf_file)
            reached(1)
            network = _load_network(source, gguf_file, tokenizer)
            reached(2)
            tokenizer.save_pretrained(target)
            network.save_pretrained(target)
            reached(3)
            _check(target, tokenizer)
            reached(4)
    except OSError:
        raise
    except Exception as error:  # readers of a damaged file raise what they like
        if "os error 28" in str(error):  # safetensors' way of saying that the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise ModelError(
            f"{gguf_file!r} could not be converted: {error}",
            hint="check that transformers, gguf and accelerate are the versions specrag requires",
        ) from error


def _load_tokenizer(source: Path, gguf_file: str) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf_file)
    # The embedded file names the pre-tokenizer "smollm", which first splits off each digit;
    # transformers reads it as plain GPT-2's, and then "\n\n1." is not tokenized as in training.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


def _load_network(source: Path, gguf_file: str, tokenizer: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    network = AutoModelForCausalLM.from_pretrained(source, gguf_file=gguf_file, dtype=torch.float32)
    # save_pretrained refuses a model that still believes it is quantized.
    network.config.quantization_config = None
    del network.config.quantization_config
    network.hf_quantizer = None
    network.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return network.to(torch.bfloat16)


def _check(folder: Path, original: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in _SAMPLES:
        if tokenizer(text).input_ids != original(text).input_ids:
            raise ValueError(f"the saved tokenizer disagrees with the original on {text!r}")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.inference_mode():
        logits = network(**tokenizer(_SAMPLES[0], return_tensors="pt")).logits
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("the converted weights give numbers that are not finite")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers while it converts, and puts its settings back."""
    # The bar over the tensors obeys no setting; ours keeps the stream that it was opened on.
    with (
        model_loading(),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
