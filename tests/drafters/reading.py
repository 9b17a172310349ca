"""What tests of drafters with features share: the target's states of a text, told in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch

from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.drafters.heads.accuracy import ReadText
from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.models.target import FINAL_NORM
from tests.drafters.kit import TOKENIZER, VOCAB, decode, params, prompt, target

HIDDEN = 32


@lru_cache(512)
def features_of(text: tuple[int, ...], layers: tuple[int, ...]) -> dict[int, torch.Tensor]:
    """Layer to ``[tokens, hidden]``."""
    model = target()
    output = model.prefill([text], model.new_cache(1), 1, layers)
    # Clones, so that heads may be trained on them.
    return {layer: states[0].clone() for layer, states in output.features.items()}


def tell(
    session: DraftSession,
    row: int,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    blocks: Sequence[Sequence[int]],
) -> None:
    """Tells a session what was committed, with the states that a decoding would bring."""
    text = list(prompt_ids)
    known = 0
    for block in blocks:
        if not block:
            continue
        text += block
        features = features_of(tuple(text[:-1]), drafter.feature_layers)
        session.observe(row, block, {layer: found[known:] for layer, found in features.items()})
        known = len(text) - 1


def opened(
    drafter: Drafter, contexts: Sequence[DraftContext], blocks: Sequence[Sequence[Sequence[int]]]
) -> DraftSession:
    """A session of rows that have come so far."""
    drafter.bind(target(), TOKENIZER)
    session = drafter.open(contexts)
    for row, (context, said) in enumerate(zip(contexts, blocks, strict=True)):
        tell(session, row, drafter, context.prompt_ids, said)
    return session


@cache
def said_texts(mode: str = "greedy", count: int = 40, length: int = 40) -> list[ReadText]:
    """Texts of the target itself, with its states, one a batch."""
    wishes = [params(mode, n, max_tokens=length, ignore_eos=True) for n in range(count)]
    prompts = [prompt(1000 + number) for number in range(count)]
    found = []
    for before, answer in zip(prompts, decode("none", wishes, prompts), strict=True):
        text = [*before, *answer.token_ids]
        states = features_of(tuple(text), (FINAL_NORM,))[FINAL_NORM].unsqueeze(0)
        said = torch.arange(len(text)).unsqueeze(0) >= len(before)
        found.append(ReadText(states, torch.tensor([text]), said))
    return found


def medusa_heads(seed: int = 0, *, scale: float = 0.1, **shape: object) -> MedusaHeads:
    """Heads that nobody trained: they repeat the target, more or less."""
    config = MedusaConfig(**{"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_heads": 3, **shape})  # type: ignore[arg-type]
    heads = MedusaHeads(config).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.normal_(0.0, scale, generator=draw)
    return heads


def eagle_heads(seed: int = 0, *, scale: float = 0.3, **shape: object) -> EagleHead | Eagle3Head:
    """A head that nobody trained: of EAGLE-1 with ``generation=2``, else of EAGLE-3."""
    generation = shape.pop("generation", 3)
    layer = DraftLayerConfig(HIDDEN, 48, 4, 2, 8, **shape.pop("layer", {}))  # type: ignore[arg-type]
    head: EagleHead | Eagle3Head
    if generation == 2:
        head = EagleHead(EagleConfig(layer, VOCAB, **shape))  # type: ignore[arg-type]
    else:
        usual: dict[str, Any] = {"draft_vocab_size": VOCAB, "feature_layers": (0, 1)}
        usual |= {"target_hidden_size": HIDDEN, "own_lm_head": False, **shape}
        head = Eagle3Head(Eagle3Config(layer, VOCAB, **usual))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.double().parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, scale, generator=draw)
    return head
