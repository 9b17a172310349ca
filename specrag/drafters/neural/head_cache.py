"""HeadCache: a draft head beside a batch: what it has read of the target, and what it drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from specrag.decoding.level import CONTEXT_TOKENS
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import Embed
from specrag.drafters.neural.head_row import HeadRow
from specrag.drafters.neural.row_cache import RowCache
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive, visible_slots

_CHUNK = 512  # positions read at a time: bounds the mask

Node = tuple[int, torch.Tensor, int, Sequence[int]]
"""Token, state before it, depth behind the committed positions, and pending slots it attends to."""


class HeadCache:
    """Keys and values of positions whose states are the target's; drafts only stay pending.

    So what was accepted of a draft is read again from the target's own states: with the head's
    states of the draft in its place, acceptance falls by a tenth.

    Args:
        head: The head.
        embed: Its token embeddings.
    """

    def __init__(self, head: FeatureHead, embed: Embed) -> None:
        self._head = head
        self._embed = embed
        self._rows = RowCache(lambda count: KVCache(head.num_layers, count))
        parameter = next(head.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        self._width = head.layer_config.hidden_size

    @property
    def rows(self) -> list[int]:
        """The rows of the batch, in the order of every pass."""
        return self._rows.rows

    def catch_up(self, rows: Mapping[int, HeadRow]) -> None:
        """Makes these rows the batch, and reads what is new of them.

        Args:
            rows: By index.
        """
        self._rows.arrange(list(rows))
        batch = [rows[index] for index in self.rows]
        self._rows.batch.rollback([row.num_read for row in batch])
        while any(row.num_unread for row in batch):
            self._read(batch)

    def drafted(
        self, nodes: Sequence[Sequence[Node]], kept: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluates nodes behind the pending ones, and leaves them pending.

        Args:
            nodes: Of each row of the batch.
            kept: Nodes of each row that are pending.

        Returns:
            What the LM head reads and the next states, ``[batch, widest, hidden]`` each.
        """
        width = max(map(len, nodes))
        nothing = torch.zeros(self._width, device=self._device, dtype=self._dtype)
        # Padding sees itself: no row of the mask is empty.
        padded = [[*of_row, *[(0, nothing, 0, ())] * (width - len(of_row))] for of_row in nodes]
        flat = [node for of_row in padded for node in of_row]
        states = torch.stack([state for _, state, _, _ in flat]).view(len(nodes), width, -1)
        token_ids = torch.tensor([[token for token, *_ in of_row] for of_row in padded])
        depths = torch.tensor([[depth for _, _, depth, _ in of_row] for of_row in padded])
        seen = [
            (place, slot)
            for place, (_, _, _, slots) in enumerate(flat)
            for slot in (*slots, kept + place % width)
        ]
        visible = torch.zeros(len(flat), kept + width, dtype=torch.bool)
        visible[tuple(zip(*seen, strict=True))] = True
        return self._run(states, token_ids, depths, visible.view(len(nodes), width, -1), kept)

    def reset(self) -> None:
        """Forgets everything."""
        self._rows.reset()

    def lengths(self) -> dict[int, int]:
        """Returns how many positions of each row were read, after checking that all is in order.

        Drafts that are pending are dropped, as with the next ``catch_up``.

        Raises:
            AssertionError: The cache is damaged.
        """
        if self.rows:
            self._rows.batch.rollback(self._rows.batch.lengths)
        return self._rows.lengths()

    def _read(self, batch: Sequence[HeadRow]) -> None:
        """Reads the next positions of each row, those of the target's own states."""
        found = [
            row.peek(_CHUNK, self._head.feature_layers) if row.num_unread else ([], [])
            for row in batch
        ]
        counts = [len(tokens) for _, tokens in found]
        features = [torch.cat(parts) for parts in zip(*(f for f, _ in found if f), strict=True)]
        fused = self._head.fuse([part.to(self._device, self._dtype) for part in features])
        width = max(counts)
        states = fused.new_zeros(len(batch), width, self._width)
        token_ids = torch.zeros(len(batch), width, dtype=torch.long)
        real = torch.arange(width) < torch.tensor(counts).unsqueeze(1)
        states[real.to(states.device)] = fused
        token_ids[real] = torch.tensor([token for _, tokens in found for token in tokens])
        depths = torch.arange(width).expand(len(batch), width)
        visible = torch.ones(width, width, dtype=torch.bool).tril().expand(len(batch), -1, -1)
        read, after = self._run(states, token_ids, depths, visible, 0)
        self._rows.batch.commit([range(count) for count in counts])
        for slot, (row, count) in enumerate(zip(batch, counts, strict=True)):
            if count:
                row.has_read(count, read[slot, count - 1], after[slot, count - 1])

    def _run(
        self,
        states: torch.Tensor,
        token_ids: torch.Tensor,
        depths: torch.Tensor,
        visible: torch.Tensor,
        kept: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cache, device = self._rows.batch, self._device
        cache.begin_pass(token_ids.shape[1], kept=kept)
        depths, visible = depths.to(device), visible.to(device)
        lengths = torch.tensor(cache.lengths, device=device).unsqueeze(1)
        # What lies further back than the head was trained on only confuses it.
        most = self._head.layer_config.max_positions
        window = most if cache.max_length + cache.num_pending > most else None
        allowed = visible_slots(visible, depths, cache.lengths, window, cache.num_slots)
        embedded = self._embed(token_ids.to(device)).to(self._dtype)
        mask = additive(allowed, self._dtype)
        found: tuple[torch.Tensor, torch.Tensor] = self._head(
            states, embedded, lengths + depths, mask, cache
        )
        return found


@dataclass(frozen=True, slots=True)
class HeadLevel:
    """One node of a draft, with its logits.

    Attributes:
        head: The head.
        embed: Its token embeddings.
        projection: Names its tokens.
    """

    head: FeatureHead
    embed: Embed
    projection: Projection

    @property
    def identity(self) -> tuple[object, ...]:
        """What its cost depends on."""
        parameter = next(self.head.parameters())
        size = len(self.projection.token_ids)
        kind = type(self.head).__name__
        return kind, repr(self.head.config), size, parameter.dtype

    @torch.inference_mode()
    def prepare(self) -> Callable[[], object]:
        """Returns the evaluation of one node behind a context of usual length."""
        cache = HeadCache(self.head, self.embed)
        cache._rows.arrange([0])
        width = self.head.layer_config.hidden_size
        state = torch.zeros(width, device=cache._device, dtype=cache._dtype)
        nodes: list[Node] = [(0, state, place, range(place)) for place in range(CONTEXT_TOKENS)]
        cache.drafted([nodes], 0)
        cache._rows.batch.commit([range(CONTEXT_TOKENS)])

        @torch.inference_mode()
        def evaluate() -> object:
            read, _ = cache.drafted([[(0, state, 0, ())]], 0)
            return self.projection.logits(read)[0, 0, 0].item()

        return evaluate
