"""A BERT with random weights that scores pairs of texts, saved as a model folder."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

_WORDS = [
    "how",
    "does",
    "the",
    "gate",
    "decide",
    "decides",
    "by",
    "entropy",
    "draft",
    "bake",
    "bread",
]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def tiny_cross_encoder(folder: Path, num_labels: int = 1, seed: int = 0) -> Path:
    """Saves a seeded model and its tokenizer; returns the folder.

    Args:
        folder: Where to; made if need be.
        num_labels: Scores of a pair.
        seed: Of the weights.
    """
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL, *_WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
        num_labels=num_labels,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertForSequenceClassification(config).save_pretrained(folder)
    return folder
