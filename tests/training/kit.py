"""What tests of training share: a tiny target, texts that it said, and their features."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.training.batches import TrainingBatch
from specrag.training.data import TrainingData
from specrag.training.features import FeatureStore
from specrag.training.objective import Objective
from specrag.training.texts import TrainingText

VOCAB = 64
LAYERS = (0, 2, -1)
TOKENIZER = tiny_tokenizer(VOCAB)


@cache
def target() -> HuggingFaceTarget:
    """Most often says the token after the last one, which is soon learned; often enough not.

    It has seven layers, so that an EAGLE-3 head reads three different ones.
    """
    made = tiny_target(num_layers=7, peakedness=1.0)
    with torch.no_grad():
        for parameter in made.decoder_layers.parameters():
            parameter.mul_(0.2 if parameter.ndim > 1 else 1.0)
        embedding = made.model.get_input_embeddings().weight
        embedding[3].mul_(0.1)  # behind which an answer begins, with any token
        rows = made.model.get_output_embeddings().weight
        rows[:4].zero_()  # marks, which an answer has no use for
        rows[4:].copy_(1.5 * embedding[4:].roll(1, 0))
    return made


@cache
def said(count: int = 24, length: int = 12) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Prompts of letters and what the target answers to them."""
    draw = torch.Generator().manual_seed(5)
    letters = TOKENIZER.decode(range(4, VOCAB))
    prompts = [
        "".join(letters[int(i)] for i in torch.randint(len(letters), (2 + n % 7,), generator=draw))
        for n in range(count)
    ]
    wanted = SamplingParams(max_tokens=length, temperature=1.0, seed=1)
    generator = SpeculativeGenerator(target(), TOKENIZER, "none")
    chats = [TOKENIZER.encode_chat([{"role": "user", "content": text}]) for text in prompts]
    answers = generator.generate_batch(chats, wanted)
    return tuple(zip(prompts, (answer.token_ids for answer in answers), strict=True))


@cache
def texts(count: int = 24, length: int = 12) -> tuple[TrainingText, ...]:
    """The same as they are trained on."""
    found = []
    for prompt, answer in said(count, length):
        ids = list(TOKENIZER.encode_chat([{"role": "user", "content": prompt}]))
        found.append(TrainingText(array("i", [*ids, *answer]), len(ids), "chat"))
    return tuple(found)


def corpus(path: Path, count: int = 24, length: int = 12) -> Path:
    """Writes the same as a file."""
    rows = [
        {
            "kind": "chat",
            "temperature": 1.0,
            "prompt": prompt,
            "response_ids": answer,
            "finished": True,
        }
        for prompt, answer in said(count, length)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def data(folder: Path, layers: Sequence[int] = LAYERS, measured: int = 4) -> TrainingData:
    """All texts with their features, the first ones held out."""
    store = FeatureStore(folder, target(), texts(), layers)
    store.fill()
    places = range(len(texts()))
    return TrainingData(texts(), store, places[measured:], places[:measured])


class Guess(torch.nn.Module):
    """Something small that learns: a matrix, a bias and an LM head that say the next token."""

    def __init__(self, seed: int = 0, width: int = 8) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.inner = torch.nn.Linear(32, width)
            self.lm_head = torch.nn.Linear(width, VOCAB, bias=False)
        self.fixed = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.seen: list[torch.Tensor] = []

    def forward(self, batch: TrainingBatch) -> Objective:
        self.seen.append(batch.token_ids)
        logits = self.lm_head(torch.tanh(self.inner(batch.features[-1])))[:, :-1]
        wanted, real = batch.token_ids[:, 1:], batch.answer[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits[real], wanted[real])
        right = float((logits.detach().argmax(-1) == wanted)[real].sum())
        return Objective(loss, {"accepted_0": right, "positions": float(real.sum())})
