"""EagleObjective: what an EAGLE head of any generation is trained on, with training-time test."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.layer import DraftLayer, Rotation
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import Embed
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.objective import COUNT, Objective
from specrag.training.taught import Taught, WeighedTokens

_FAR = -1e30  # of a score that must not count; infinity would give NaN where nothing counts


@dataclass(frozen=True, slots=True)
class EagleLossSettings:
    """How the steps of a draft are weighed.

    Attributes:
        num_steps: Levels of a draft that are gone through in training.
        decay: Weight of a step relative to the one before.
        state_weight: Weight of the distance between a predicted state and the target's, which
            EAGLE-1 needs and EAGLE-3 dropped.
        draws_depth: While training, each batch goes through a number of levels drawn at random,
            in the shares that ``decay`` gives, and these weigh the same. A batch of all levels
            says little more than one of the first, and takes several times as long.
        weighed: Which tokens a batch of the training weighs; None weighs the whole draft
            vocabulary, as measuring always does.
    """

    num_steps: int = 4
    decay: float = 0.8
    state_weight: float = 0.0
    draws_depth: bool = True
    weighed: WeighedTokens | None = field(default_factory=WeighedTokens)

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, got {self.num_steps}")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay must be above 0 and at most 1, got {self.decay}")
        if not 0 <= self.state_weight < math.inf:
            raise ConfigError(f"state_weight must be 0 or more, got {self.state_weight}")


class EagleObjective(nn.Module):
    """Lets a head draft from its own states, as it will have to.

    "Training-time test" of EAGLE-3 (Li et al., 2025), which HASS (Zhang et al., 2024) had for
    EAGLE-1: step 0 reads the target's states, step k the states that step k-1 returned one
    position before. Attention is that of a real draft: a position sees the target's states of all
    positions up to k before it, and of each later one what the step returned that drafted it.

    Args:
        head: To train.
        embed: The token embeddings that the head reads; the target's are not trained.
        projection: The target's LM head, of the draft vocabulary: what the answer is measured
            against, and read by heads without one of their own. Not trained.
        settings: Weights of the loss.
    """

    def __init__(
        self,
        head: FeatureHead,
        embed: Embed,
        projection: Projection,
        settings: EagleLossSettings | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.settings = settings or EagleLossSettings()
        # In a list, so that a module of the target is none of this one's.
        self._around = [embed]
        self._projection = projection

    def forward(self, batch: TrainingBatch) -> Objective:
        """Returns the loss of a batch, and how often each step was right.

        Args:
            batch: With the head's features and those behind the final norm.
        """
        # The same batch is always taught in the same way: a training that was stopped goes on so.
        draw = random.Random(int(batch.token_ids.sum()))
        weights = self._weights(draw)
        weighed = self.settings.weighed if self.training else None
        wanted = _Wanted.of(batch, self._projection, weighed, draw.getrandbits(32))
        window = Window.around(batch.answer, len(weights) - 1)
        found = [
            self._step(number, *step, wanted, window)
            for number, step in enumerate(self.steps(batch, window, len(weights)))
        ]
        losses = torch.stack([step.loss for step in found])
        loss = (losses * losses.new_tensor(weights)).sum() / sum(weights)
        right = torch.stack([step.right for step in found])
        agreed = right.cumprod(0).sum(1).tolist()
        metrics = {f"accepted_{number}": float(count) for number, count in enumerate(agreed)}
        if len(weights) < self.settings.num_steps:
            metrics |= {f"{name}{COUNT}": float(right.shape[1]) for name in metrics}
        return Objective(loss, {**metrics, "positions": float(right.shape[1])})

    def _weights(self, draw: random.Random) -> list[float]:
        """The weight of each step that a batch goes through."""
        shares = [self.settings.decay**number for number in range(self.settings.num_steps)]
        if not (self.training and self.settings.draws_depth):
            return shares
        (depth,) = draw.choices(range(1, len(shares) + 1), shares)
        return [1.0] * depth

    def steps(
        self, batch: TrainingBatch, window: Window | None = None, depth: int | None = None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Returns what the LM head reads and the next states of each step.

        Args:
            batch: ``[batch, tokens]``.
            window: The places that are wanted; None for all.
            depth: Number of steps; None for all of them.

        Returns:
            Pairs ``[batch, width, hidden]``. Place t of step k reads token t+1 and says what
            token t+2 is, when its last k tokens are drafted. The first k places of a window have
            not enough before them and mean nothing.
        """
        head = self.head
        states = head.fuse([batch.features[layer] for layer in head.feature_layers])[:, :-1]
        embedded = self._embed(batch.token_ids[:, 1:])
        places = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
        rotation = head.rotary(places, states)
        if window is None:
            window = Window.whole(states.shape[0], states.shape[1], states.device)
        memories = [_Memory(window) for _ in head.draft_layers]
        outputs = _first(head, states, embedded, rotation, memories, window)
        embedded, rotation = window.of(embedded), window.rotation(rotation)
        found = [head.leave(outputs)]
        for _ in range(1, depth or self.settings.num_steps):
            inputs, outputs = head.enter(_later(found[-1][1], 1), embedded)
            for number, layer in enumerate(head.draft_layers):
                if number:
                    inputs = head.enter_later(number, outputs)
                outputs = memories[number].attended(layer, inputs, outputs, rotation)
            found.append(head.leave(outputs))
        return found

    def _step(
        self,
        number: int,
        read: torch.Tensor,
        states: torch.Tensor,
        wanted: _Wanted,
        window: Window,
    ) -> _Step:
        # A position that has fewer tokens before it than the draft is deep was not drafted.
        rows, places = wanted.rows, wanted.places
        real, slots = places >= number, places - window.starts[rows]
        logits = self._logits(read[rows, slots], wanted.taught)
        loss = wanted.taught.losses(logits)
        weight = (self._projection.places(wanted.said) >= 0) & real
        loss = (loss * weight).sum() / weight.sum().clamp(min=1)
        if self.settings.state_weight:
            off = F.smooth_l1_loss(states[rows, slots], wanted.states, reduction="none").mean(-1)
            off = (off * real).sum() / real.sum().clamp(min=1)
            loss = loss + self.settings.state_weight * off
        right = wanted.taught.said(logits) == wanted.said
        return _Step(loss, _aligned(right & real, rows, slots, read.shape[:2], number))

    def _logits(self, read: torch.Tensor, taught: Taught) -> torch.Tensor:
        own = getattr(self.head, "lm_head", None)
        if own is None:
            return taught.projection.logits(read)
        weight = own.weight if taught.places is None else own.weight[taught.places]
        return F.linear(read, weight)

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        (embed,) = self._around
        with torch.set_grad_enabled(torch.is_grad_enabled() and hasattr(self.head, "embed_tokens")):
            embedded = embed(token_ids)
        # In the precision of the head: the target's may be half of it.
        return embedded.to(next(self.head.parameters()).dtype)


class _Step(NamedTuple):
    loss: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the answer positions of a batch should have said.

    Attributes:
        rows: Row of each position.
        places: Its place: place t has to say token t+2.
        taught: What the target says there.
        said: The token that came.
        states: The target's states that said it.
    """

    rows: torch.Tensor
    places: torch.Tensor
    taught: Taught
    said: torch.Tensor
    states: torch.Tensor

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        batch: TrainingBatch,
        projection: Projection,
        weighed: WeighedTokens | None,
        seed: int,
    ) -> _Wanted:
        """Reads it off the target's states, one position behind.

        Args:
            batch: The batch.
            projection: The target's LM head, of the draft vocabulary.
            weighed: Tokens to weigh; None weighs all.
            seed: Of those that are drawn.
        """
        rows, places = batch.answer[:, 2:].nonzero(as_tuple=True)
        states = batch.features[FINAL_NORM][rows, places + 1]
        said = batch.token_ids[rows, places + 2]
        return cls(rows, places, Taught.by(projection, states, weighed, seed), said, states)


@dataclass(frozen=True, slots=True)
class Window:
    """The places of each text that a draft is made at: its answer, and what comes just before.

    What a prompt says needs keys and values alone, which is a small part of the work.

    Attributes:
        starts: First place of each text, ``[batch]``.
        places: Every place, ``[batch, width]``; those beyond the text repeat its last one.
    """

    starts: torch.Tensor
    places: torch.Tensor

    @classmethod
    def whole(cls, rows: int, length: int, device: torch.device) -> Window:
        """Returns all places.

        Args:
            rows: Number of texts.
            length: Number of places.
            device: Where to.
        """
        places = torch.arange(length, device=device).expand(rows, length)
        return cls(torch.zeros(rows, dtype=torch.long, device=device), places)

    @classmethod
    def around(cls, answer: torch.Tensor, before: int) -> Window:
        """Returns the places that say an answer.

        Args:
            answer: ``[batch, tokens]`` bool, each with an answer.
            before: Places before the first of them.
        """
        last = answer.shape[1] - 2
        positions = torch.arange(answer.shape[1], device=answer.device)
        firsts = torch.where(answer, positions, answer.shape[1]).amin(1)
        ends = torch.where(answer, positions, -1).amax(1) - 2
        starts = (firsts - 2 - before).clamp(min=0)
        width = max(1, int((ends - starts).max()) + 1)
        places = starts.unsqueeze(1) + torch.arange(width, device=answer.device)
        return cls(starts, places.clamp(max=last))

    def of(self, states: torch.Tensor) -> torch.Tensor:
        """Returns states at these places, ``[batch, width, ...]``.

        Args:
            states: ``[batch, places, ...]``.
        """
        rows = torch.arange(len(self.starts), device=states.device).unsqueeze(1)
        return states[rows, self.places]

    def rotation(self, rotation: Rotation) -> Rotation:
        """Returns the rotation of these places.

        Args:
            rotation: Of all places, ``[1, places, head_dim]``.
        """
        cosines, sines = rotation
        return cosines[0, self.places], sines[0, self.places]


def _first(
    head: FeatureHead,
    states: torch.Tensor,
    embedded: torch.Tensor,
    rotation: Rotation,
    memories: list[_Memory],
    window: Window,
) -> torch.Tensor:
    """Step 0: every place is read, and what leaves the last layer is computed in the window."""
    inputs, outputs = head.enter(states, embedded)
    for number, layer in enumerate(head.draft_layers):
        if number:
            inputs = head.enter_later(number, outputs)
        memories[number].remember(layer, inputs, rotation)
        if number + 1 == head.num_layers:
            queries = layer.queries(window.of(inputs), window.rotation(rotation))
            outputs = window.of(outputs)
            seen = memories[number].seen(0)
        else:
            queries = layer.queries(inputs, rotation)
            seen = torch.ones(2 * inputs.shape[1:2], dtype=torch.bool, device=inputs.device).tril()
        keys, values = memories[number].first
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        outputs = layer.finish(attended, outputs)
    return outputs


class _Memory:
    """Keys and values of one layer: of the target's states, and of each step of the draft."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._drafted: list[tuple[torch.Tensor, torch.Tensor]] = []

    def remember(self, layer: DraftLayer, inputs: torch.Tensor, rotation: Rotation) -> None:
        """Takes the keys and values of the target's states, of all places."""
        self.first = _repeated(layer, *layer.keys_values(inputs, rotation))

    def seen(self, step: int) -> torch.Tensor:
        """Which places' own states a place still sees at a step, ``[batch, 1, width, places]``."""
        keys = torch.arange(self.first[0].shape[2], device=self._window.places.device)
        allowed = keys <= (self._window.places - step).unsqueeze(-1)
        return allowed.unsqueeze(1)

    def attended(
        self, layer: DraftLayer, inputs: torch.Tensor, residual: torch.Tensor, rotation: Rotation
    ) -> torch.Tensor:
        """Runs a layer for the next step of a draft, and remembers its keys and values."""
        queries, *drafted = layer.project(inputs, rotation)
        self._drafted.append(_repeated(layer, *drafted))
        step, scale = len(self._drafted), queries.shape[-1] ** -0.5
        keys, values = self.first
        scores = [(queries @ keys.transpose(-1, -2) * scale).masked_fill(~self.seen(step), _FAR)]
        for back, (own, _) in enumerate(self._drafted, start=1):
            found = (queries * _later(own, step - back, dim=2)).sum(-1, keepdim=True)
            scores.append(found * scale)
        shares = torch.softmax(torch.cat(scores, dim=-1), dim=-1)
        length = keys.shape[2]
        attended = shares[..., :length] @ values
        for back, (_, own) in enumerate(self._drafted, start=1):
            share = shares[..., length + back - 1].unsqueeze(-1)
            attended = attended + share * _later(own, step - back, dim=2)
        return layer.finish(attended, residual)


def _repeated(
    layer: DraftLayer, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One key/value head for each head."""
    groups = layer.config.num_heads // layer.config.num_kv_heads
    return keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)


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
    slots: torch.Tensor,
    shape: torch.Size,
    number: int,
) -> torch.Tensor:
    """Lists for each position where a draft starts whether its token at this depth was right."""
    grid = torch.zeros(shape[0], shape[1] + number, dtype=torch.bool, device=right.device)
    grid[rows, slots] = right
    return grid[rows, slots + number].clone()
