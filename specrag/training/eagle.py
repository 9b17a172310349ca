"""EagleObjective: what an EAGLE head of any generation is trained on, with training-time test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.layer import DraftLayer, Rotation
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.objective import Objective

_FAR = -1e30  # of a score that must not count; infinity would give NaN where nothing counts


@dataclass(frozen=True, slots=True)
class EagleLossSettings:
    """How the steps of a draft are weighed.

    Attributes:
        num_steps: Levels of a draft that are gone through in training.
        decay: Weight of a step relative to the one before.
        state_weight: Weight of the distance between a predicted state and the target's, which
            EAGLE-1 needs and EAGLE-3 dropped.
    """

    num_steps: int = 4
    decay: float = 0.8
    state_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, got {self.num_steps}")


class EagleObjective(nn.Module):
    """Lets a head draft from its own states, as it will have to.

    "Training-time test" of EAGLE-3 (Li et al., 2025), which HASS (Zhang et al., 2024) had for
    EAGLE-1: step 0 reads the target's states, step k the states that step k-1 returned one
    position before. Attention is that of a real draft: a position sees the target's states of all
    positions up to k before it, and of each later one what the step returned that drafted it.

    Args:
        head: To train.
        embedding: The target's token embeddings, ``[vocab, hidden]``; not trained.
        lm_rows: Rows of the target's LM head, ``[draft vocab, hidden]``: what the answer is
            measured against, and read by heads without one of their own. Not trained.
        token_ids: The tokens that these rows stand for, ``[draft vocab]``.
        vocab_size: Of the target.
        settings: Weights of the loss.
    """

    def __init__(
        self,
        head: FeatureHead,
        embedding: torch.Tensor,
        lm_rows: torch.Tensor,
        token_ids: torch.Tensor,
        vocab_size: int,
        settings: EagleLossSettings | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.settings = settings or EagleLossSettings()
        self._embedding, self._lm_rows = embedding, lm_rows
        self._token_ids = token_ids
        self._place = torch.full((vocab_size,), -1, dtype=torch.long, device=token_ids.device)
        self._place[token_ids] = torch.arange(len(token_ids), device=token_ids.device)

    def forward(self, batch: TrainingBatch) -> Objective:
        """Returns the loss of a batch, and how often each step was right.

        Args:
            batch: With the head's features and those behind the final norm.
        """
        wanted = _Wanted.of(batch, self._lm_rows)
        found = [self._step(number, *step, wanted) for number, step in enumerate(self.steps(batch))]
        weights = [self.settings.decay**number for number in range(len(found))]
        losses = torch.stack([step.loss for step in found])
        loss = (losses * losses.new_tensor(weights)).sum() / sum(weights)
        right = torch.stack([step.right for step in found])
        agreed = right.cumprod(0).sum(1).tolist()
        metrics = {f"accepted_{number}": float(count) for number, count in enumerate(agreed)}
        return Objective(loss, {**metrics, "positions": float(right.shape[1])})

    def steps(self, batch: TrainingBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Returns what the LM head reads and the next states of each step.

        Args:
            batch: ``[batch, tokens]``.

        Returns:
            Pairs ``[batch, tokens - 1, hidden]``. Row t of step k reads token t+1 and says what
            token t+2 is, when its last k tokens are drafted.
        """
        head = self.head
        states = head.fuse([batch.features[layer] for layer in head.feature_layers])[:, :-1]
        embedded = self._embed(batch.token_ids[:, 1:])
        positions = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
        rotation = head.rotary(positions, states)
        memories = [_Memory() for _ in head.draft_layers]
        found = []
        for _ in range(self.settings.num_steps):
            inputs, outputs = head.enter(states, embedded)
            for number, layer in enumerate(head.draft_layers):
                if number:
                    inputs = head.enter_later(number, outputs)
                outputs = _attended(layer, inputs, outputs, rotation, memories[number])
            read, states = head.leave(outputs)
            found.append((read, states))
            states = _later(states, 1)
        return found

    def _step(
        self, number: int, read: torch.Tensor, states: torch.Tensor, wanted: _Wanted
    ) -> _Step:
        # A position that has fewer tokens before it than the draft is deep was not drafted.
        rows, places = wanted.rows, wanted.places
        real = places >= number
        logits = self._logits(read[rows, places])
        loss = -(wanted.probs * torch.log_softmax(logits, dim=-1)).sum(-1)
        weight = (self._place[wanted.said] >= 0) & real
        loss = (loss * weight).sum() / weight.sum().clamp(min=1)
        if self.settings.state_weight:
            loss = loss + self.settings.state_weight * F.smooth_l1_loss(
                states[rows, places][real], wanted.states[real]
            )
        right = self._token_ids[logits.detach().argmax(-1)] == wanted.said
        return _Step(loss, _aligned(right & real, rows, places, read.shape[:2], number))

    def _logits(self, read: torch.Tensor) -> torch.Tensor:
        own = getattr(self.head, "lm_head", None)
        logits: torch.Tensor = read @ self._lm_rows.T if own is None else own(read)
        return logits

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        own = getattr(self.head, "embed_tokens", None)
        embedded: torch.Tensor = (
            F.embedding(token_ids, self._embedding) if own is None else own(token_ids)
        )
        return embedded


class _Step(NamedTuple):
    loss: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the answer positions of a batch should have said.

    Attributes:
        rows: Row of each position.
        places: Its place: place t has to say token t+2.
        probs: The target's own distribution, ``[positions, draft vocab]``.
        said: The token that came.
        states: The target's states that said it.
    """

    rows: torch.Tensor
    places: torch.Tensor
    probs: torch.Tensor
    said: torch.Tensor
    states: torch.Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, batch: TrainingBatch, lm_rows: torch.Tensor) -> _Wanted:
        """Reads it off the target's states, one position behind.

        Args:
            batch: The batch.
            lm_rows: Rows of the target's LM head.
        """
        rows, places = batch.answer[:, 2:].nonzero(as_tuple=True)
        states = batch.features[FINAL_NORM][rows, places + 1]
        logits = states @ lm_rows.T
        said = batch.token_ids[rows, places + 2]
        return cls(rows, places, torch.softmax(logits, dim=-1), said, states)


class _Memory:
    """Keys and values of one layer: of the target's states, and of each step of the draft."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []


def _attended(
    layer: DraftLayer,
    inputs: torch.Tensor,
    residual: torch.Tensor,
    rotation: Rotation,
    memory: _Memory,
) -> torch.Tensor:
    """Runs a layer for the next step of a draft, and remembers its keys and values."""
    queries, keys, values = layer.project(inputs, rotation)
    groups = queries.shape[1] // keys.shape[1]
    memory.keys.append(keys.repeat_interleave(groups, dim=1))
    memory.values.append(values.repeat_interleave(groups, dim=1))
    step = len(memory.keys) - 1
    if not step:
        attended = F.scaled_dot_product_attention(
            queries, memory.keys[0], memory.values[0], is_causal=True
        )
        return layer.finish(attended, residual)
    scale = queries.shape[-1] ** -0.5
    length = queries.shape[2]
    seen = torch.ones(length, length, dtype=torch.bool, device=queries.device).tril(-step)
    scores = [(queries @ memory.keys[0].transpose(-1, -2) * scale).masked_fill(~seen, _FAR)]
    for back in range(1, step + 1):
        drafted = _later(memory.keys[back], step - back, dim=2)
        scores.append((queries * drafted).sum(-1, keepdim=True) * scale)
    shares = torch.softmax(torch.cat(scores, dim=-1), dim=-1)
    attended = shares[..., :length] @ memory.values[0]
    for back in range(1, step + 1):
        share = shares[..., length + back - 1].unsqueeze(-1)
        attended = attended + share * _later(memory.values[back], step - back, dim=2)
    return layer.finish(attended, residual)


def _later(states: torch.Tensor, by: int, dim: int = 1) -> torch.Tensor:
    """Moves states to later positions; the first ones, which have none, become zero."""
    if not by:
        return states
    kept = states.narrow(dim, 0, max(0, states.shape[dim] - by))
    gap = states.new_zeros(
        *states.shape[:dim], states.shape[dim] - kept.shape[dim], *states.shape[dim + 1 :]
    )
    return torch.cat([gap, kept], dim=dim)


def _aligned(
    right: torch.Tensor,
    rows: torch.Tensor,
    places: torch.Tensor,
    shape: torch.Size,
    number: int,
) -> torch.Tensor:
    """Lists for each position where a draft starts whether its token at this depth was right."""
    grid = torch.zeros(shape[0], shape[1] + number, dtype=torch.bool, device=right.device)
    grid[rows, places] = right
    return grid[rows, places + number].clone()
