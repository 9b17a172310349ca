"""A seeded toy target and tokenizer: real code paths in milliseconds, without any download."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tokenizer import Tokenizer

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def tiny_target(
    seed: int = 0,
    *,
    vocab_size: int = 64,
    num_layers: int = 2,
    max_context: int = 512,
    peakedness: float = 8.0,
) -> HuggingFaceTarget:
    """Builds a random Llama that decodes in fractions of a millisecond.

    Args:
        seed: Seed of the weights.
        vocab_size: Number of tokens; token 0 ends an answer.
        num_layers: Number of decoder layers.
        max_context: Most tokens of a row.
        peakedness: Scale of the logits; higher makes the next token surer and text more
            repetitive, which is what gives drafters something to guess.
    """
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_context,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.2)
            model.lm_head.weight.mul_(peakedness)
    return HuggingFaceTarget(model.float(), f"tiny-{seed}")


def tiny_tokenizer(vocab_size: int = 64) -> Tokenizer:
    """Builds a tokenizer of single characters with a chat template.

    Args:
        vocab_size: Number of tokens; ids 0 to 3 are the end and the three role marks.
    """
    marks = ["<eos>", "<s>", "<u>", "<a>"]
    letters = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?!'-:;()"
    words = (marks + list(letters))[:vocab_size]
    words += [chr(0x4E00 + i) for i in range(vocab_size - len(words))]
    backend = RustTokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=" "))
    backend.pre_tokenizer = Split("", "isolated")
    backend.decoder = Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<eos>",
        additional_special_tokens=["<s>", "<u>", "<a>"],
        chat_template=CHAT_TEMPLATE,
    )
    return Tokenizer(fast)
