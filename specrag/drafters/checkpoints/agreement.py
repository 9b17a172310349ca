"""How often a draft head names the target's own token, on text that the target generated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.checkpoints.checkpoint import DraftHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.teacher import teacher_forced
from specrag.drafters.none import NoDrafter
from specrag.models.tokenizer import Tokenizer
from specrag.models.transformers_target import TransformersTarget

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Write a Python function that counts the words of a text, and explain it.",
)
"""Prose, a tale and code: what the target answers is the text that a head is tried on."""

NUM_TOKENS = 72
"""Tokens of an answer."""

DEPTH = 2
"""Levels that are compared: what goes from one level to the next shows at the second only."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A text that the target generated.

    Attributes:
        token_ids: Prompt and answer.
        answer_start: Where the answer begins.
    """

    token_ids: tuple[int, ...]
    answer_start: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a head was right, the tokens before being the target's.

    Attributes:
        right: For each level the number of tokens that it named rightly.
        total: Tokens asked for at each level.
    """

    right: tuple[int, ...]
    total: int

    @property
    def shares(self) -> tuple[float, ...]:
        """For each level the share of tokens named rightly."""
        return tuple(right / max(1, self.total) for right in self.right)

    @property
    def score(self) -> float:
        """The mean over the levels."""
        return sum(self.shares) / len(self.shares)

    def __str__(self) -> str:
        return " and ".join(f"{share:.3f}" for share in self.shares)


def generated_trials(target: TransformersTarget, tokenizer: Tokenizer) -> tuple[Trial, ...]:
    """Lets the target answer the built-in prompts, greedily.

    Args:
        target: The target.
        tokenizer: Its tokenizer.
    """
    generator = SpeculativeGenerator(target, tokenizer, NoDrafter())
    prompts = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in PROMPTS]
    answers = generator.generate_batch(prompts, SamplingParams(max_tokens=NUM_TOKENS))
    return tuple(
        Trial((*prompt, *answer.token_ids), len(prompt))
        for prompt, answer in zip(prompts, answers, strict=True)
    )


def features_of(
    target: TransformersTarget, trial: Trial, layers: Sequence[int]
) -> Mapping[int, torch.Tensor]:
    """Returns the states of every position of a text, ``[1, tokens, hidden]`` for each layer.

    Args:
        target: The target.
        trial: The text.
        layers: What is wanted, see ``TargetModel``.
    """
    cache = target.new_cache(1, len(trial.token_ids))
    return target.prefill([trial.token_ids], cache, feature_layers=layers).features


def commonest_share(trials: Sequence[Trial]) -> float:
    """Returns how often the most common token of the answers comes: what needs no head at all.

    Args:
        trials: The texts.
    """
    counts = Counter(token for trial in trials for token in trial.token_ids[trial.answer_start :])
    return max(counts.values(), default=0) / max(1, counts.total())


@torch.no_grad()
def agreement_of(
    head: DraftHead,
    target: TransformersTarget,
    trials: Sequence[Trial],
    features: Sequence[Mapping[int, torch.Tensor]],
    draft_token_ids: torch.Tensor | None = None,
) -> Agreement:
    """Returns how often a head names the tokens of the answers.

    Args:
        head: In the target's precision, on its device.
        target: Whose embeddings and LM head it may read.
        trials: The texts.
        features: Of each text, see ``features_of``; they hold the head's ``feature_layers``.
        draft_token_ids: ``[draft vocab]``, the target's token for each of the head's.
    """
    depth = min(DEPTH, head.num_heads) if isinstance(head, MedusaHeads) else DEPTH
    right, total = [0] * depth, 0
    for trial, states in zip(trials, features, strict=True):
        tokens = torch.tensor(trial.token_ids, device=target.device)
        # Position t says tokens t + 2 and t + 3; the first that is asked for is of the answer.
        count, first = len(tokens) - 1 - depth, max(0, trial.answer_start - 2)
        if count <= first:
            continue
        given = [states[layer][:, :count] for layer in head.feature_layers]
        outputs = _outputs(head, target, given, tokens[1 : count + depth], depth)
        for level, (read, weight) in enumerate(outputs):
            ids = _tokens(read, weight, target, draft_token_ids)
            wanted = tokens[level + 2 : level + 2 + count]
            right[level] += int((ids == wanted)[first:].sum())
        total += count - first
    return Agreement(tuple(right), total)


def _outputs(
    head: DraftHead,
    target: TransformersTarget,
    features: Sequence[torch.Tensor],
    next_tokens: torch.Tensor,
    depth: int,
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """For each level what the LM head reads, ``[n, hidden]``, and the head's own LM head."""
    if isinstance(head, MedusaHeads):
        weights = head.own_weights or (None,) * depth
        return list(zip(head(features[0], depth)[0].unbind(dim=1), weights, strict=False))
    mine = head if isinstance(head, Eagle3Head) else None
    own_embedding = mine is not None and mine.config.own_embedding
    embed = mine.embed_tokens if mine and own_embedding else target.model.get_input_embeddings()
    weight = mine.lm_head.weight if mine and mine.config.own_lm_head else None
    outputs = teacher_forced(head, features, embed(next_tokens).unsqueeze(0), depth)
    return [(read[0], weight) for read in outputs]


def _tokens(
    states: torch.Tensor,
    weight: torch.Tensor | None,
    target: TransformersTarget,
    draft_token_ids: torch.Tensor | None,
) -> torch.Tensor:
    ids = None if draft_token_ids is None else draft_token_ids.to(states.device)
    if weight is not None:
        logits = states @ weight.T
    else:
        logits = target.model.get_output_embeddings()(states)
        logits = logits if ids is None else logits[:, ids]
    best = logits.argmax(dim=-1)
    return best if ids is None else ids[best]
