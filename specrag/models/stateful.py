"""StatefulTarget: plain decoding of the models whose state cannot take a draft back."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from specrag.models.kv_cache import KVCache
from specrag.models.target import ModelOutput, TreePass
from specrag.models.transformers_target import TransformersTarget, forward_parameters

_STATE_KEYWORDS = ("cache", "past_key_values", "cache_params", "state")


@dataclass(slots=True)
class _RowState:
    """A row's tokens, pending ones included, and what the model keeps of the first ``fed``."""

    token_ids: list[int] = field(default_factory=list)
    fed: int = 0
    state: Any = None

    def keep(self, length: int) -> None:
        """Drops what lies behind; a state that has seen more is of no further use."""
        del self.token_ids[length:]
        if self.fed > length:
            self.fed, self.state = 0, None


class StatefulCache(KVCache):
    """Rows that each hold a state of the model's own making.

    Has the methods of ``KVCache``. A state only moves forward, so a row that loses a token, through
    a rollback or a pass that is not committed, is evaluated again from its beginning by the next
    pass: right, but as dear as a prefill. Rows cannot be exported.

    Args:
        batch_size: Number of rows.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__(num_layers=0, batch_size=batch_size, capacity=0)
        self.rows = [_RowState() for _ in range(batch_size)]

    def stage(self, token_ids: Sequence[Sequence[int]]) -> None:
        """Lays the tokens of the next pass behind the committed ones.

        Args:
            token_ids: For each row.
        """
        self._settle()
        for row, tokens in zip(self.rows, token_ids, strict=True):
            row.token_ids.extend(tokens)
        self.begin_pass(max((len(tokens) for tokens in token_ids), default=0))

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keeps the first nodes of each row, see ``KVCache.commit``.

        Args:
            paths: For each row ``range(n)`` for some ``n``.

        Raises:
            ValueError: A path skips a node, which only a tree could ask for.
        """
        for path in paths:
            if list(path) != list(range(len(path))):
                raise ValueError(f"path {list(path)} skips a node: this cache holds no trees")
        super().commit(paths)
        self._settle()

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops committed tokens from the end, see ``KVCache.rollback``.

        Args:
            lengths: For each row the number of tokens to keep.

        Raises:
            ValueError: A row would grow, or a length is negative.
        """
        super().rollback(lengths)
        self._settle()

    @torch.inference_mode()
    def select_rows(self, rows: Sequence[int]) -> None:
        """Keeps only the named rows, in that order, see ``KVCache.select_rows``.

        Args:
            rows: Indices of the rows to keep; one named twice is copied.
        """
        self._settle()
        super().select_rows(rows)
        taken: set[int] = set()
        kept = []
        for row in rows:
            kept.append(copy.deepcopy(self.rows[row]) if row in taken else self.rows[row])
            taken.add(row)
        self.rows = kept

    @torch.inference_mode()
    def join(self, other: KVCache) -> None:
        """Appends copies of the rows of another cache, see ``KVCache.join``.

        Args:
            other: A cache of the same model; stays as it is.

        Raises:
            ValueError: Nodes are pending on either side, or the other is of another kind.
        """
        if not isinstance(other, StatefulCache):
            raise ValueError(f"a {type(other).__name__} cannot join a StatefulCache")
        super().join(other)
        self.rows += copy.deepcopy(other.rows)

    def export_row(self, row: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Refuses: a state stands for all of its tokens, no part of it for some of them.

        Args:
            row: Index of the row.
            length: Number of tokens.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"cannot export row {row}: its state has no keys and values of {length}")

    def import_row(self, row: int, states: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Refuses, see ``export_row``.

        Args:
            row: Index of the row.
            states: Keys and values ``[heads, length, head_dim]`` of each layer.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"cannot import into row {row}: it takes no keys and values")

    def check_integrity(self) -> None:
        """Asserts what holds between passes, see ``KVCache.check_integrity``.

        Raises:
            AssertionError: The cache is damaged; the message says where.
        """
        super().check_integrity()
        held = tuple(len(row.token_ids) for row in self.rows)
        assert held == self.lengths, f"rows hold {held} tokens, not {self.lengths}"
        assert all(row.fed <= len(row.token_ids) for row in self.rows), "a state is ahead"

    def _settle(self) -> None:
        """Forgets the tokens that were never committed."""
        for row, length in zip(self.rows, self.lengths, strict=True):
            row.keep(length)


class StatefulTarget(TransformersTarget):
    """A causal LM that decodes one token a pass, each row with a state of its own.

    Any architecture that transformers can decode works, recurrent ones above all. A prompt is
    evaluated at once in an empty row, and token by token behind earlier ones, which is the only
    way that every recurrent layer continues rightly.

    Args:
        model: A loaded causal LM.
        name: What users call it.
        reason: Why it does not speculate, such as ``bloom takes no position_ids``.

    Raises:
        ModelError: The model has an encoder.
    """

    def __init__(self, model: Any, name: str, reason: str) -> None:
        super().__init__(model, name)
        self.no_speculation = reason
        taken = forward_parameters(model)
        # The keyword changed its name within transformers 5. Where there is none, or no state comes
        # back, the whole text is evaluated for each token.
        self._state_keyword = next((key for key in _STATE_KEYWORDS if key in taken), None)
        self._takes_positions = "position_ids" in taken

    def new_cache(self, batch_size: int, capacity: int = 512) -> StatefulCache:
        """Returns an empty cache for this model.

        Args:
            batch_size: Number of rows.
            capacity: Nothing is reserved.
        """
        return StatefulCache(batch_size)

    @torch.inference_mode()
    def prefill(
        self,
        prompts: Sequence[Sequence[int]],
        cache: KVCache,
        num_logits: int = 1,
        feature_layers: Sequence[int] = (),
    ) -> ModelOutput:
        """Evaluates prompts row by row, see the contract.

        Args:
            prompts: Token ids of each row.
            cache: The prompts are appended to it.
            num_logits: Last positions of each row to return logits for.
            feature_layers: Layers to return the hidden states of, at all positions.

        Returns:
            Logits ``[batch, num_logits, vocab]`` and features ``[batch, longest, hidden]``.
        """
        output = self._run(prompts, cache, num_logits, feature_layers)
        cache.commit([range(len(prompt)) for prompt in prompts])
        return output

    @torch.inference_mode()
    def forward(
        self, tree_pass: TreePass, cache: KVCache, feature_layers: Sequence[int] = ()
    ) -> ModelOutput:
        """Evaluates one more token of each row, see the contract.

        Args:
            tree_pass: One node a row, ``[batch, 1]``.
            cache: Committed tokens of each row; the node becomes pending in it.
            feature_layers: Layers to return the hidden states of.

        Returns:
            Logits ``[batch, 1, vocab]`` and features ``[batch, 1, hidden]``.

        Raises:
            ValueError: The pass has more nodes, or keeps earlier ones.
        """
        if tree_pass.visible.shape[1:] != (1, 1):
            raise ValueError(
                f"{self.name} takes one token of each row a pass, not a tree of "
                f"{tree_pass.visible.shape[2]} nodes: {self.no_speculation}"
            )
        return self._run(tree_pass.token_ids.tolist(), cache, 1, feature_layers)

    def _run(
        self,
        token_ids: Sequence[Sequence[int]],
        cache: KVCache,
        count: int,
        feature_layers: Sequence[int],
    ) -> ModelOutput:
        if not isinstance(cache, StatefulCache):
            raise ValueError(f"{self.name} needs a cache of its own, not a {type(cache).__name__}")
        cache.stage(token_ids)
        outputs = [
            self._advance(row, len(tokens), min(count, len(tokens)), feature_layers)
            for row, tokens in zip(cache.rows, token_ids, strict=True)
        ]
        logits = torch.stack([_padded(output.logits, count) for output in outputs])
        features = {
            layer: pad_sequence([output.features[layer] for output in outputs], batch_first=True)
            for layer in feature_layers
        }
        return ModelOutput(logits, features)

    def _advance(
        self, row: _RowState, num_new: int, count: int, feature_layers: Sequence[int]
    ) -> ModelOutput:
        """Feeds a row's new tokens.

        Returns:
            The logits ``[count, vocab]`` of the last ones, and the features of all of them.
        """
        start = row.fed if self._state_keyword else 0
        pieces = [[token] for token in row.token_ids[start:]] if start else [row.token_ids]
        logits: deque[torch.Tensor] = deque(maxlen=count)
        features: dict[int, list[torch.Tensor]] = {layer: [] for layer in feature_layers}
        for place, piece in enumerate(pieces):
            output = self._feed(row, piece, start + place, count, feature_layers)
            logits.append(output.logits)
            for layer, states in output.features.items():
                features[layer].append(states)
        row.fed = len(row.token_ids)
        return ModelOutput(
            torch.cat(tuple(logits))[-count:],
            {layer: torch.cat(states)[-num_new:] for layer, states in features.items()},
        )

    def _feed(
        self,
        row: _RowState,
        piece: Sequence[int],
        start: int,
        count: int,
        feature_layers: Sequence[int],
    ) -> ModelOutput:
        """Evaluates tokens from the position ``start`` on, behind the row's state."""
        options: dict[str, Any] = {"logits_to_keep": count} if self._trims_logits else {}
        if self._state_keyword:
            options |= {self._state_keyword: row.state, "use_cache": True}
        if self._takes_positions:  # some hybrids would count them by a layer that keeps no count
            end = start + len(piece)
            options["position_ids"] = torch.arange(start, end, device=self.device).unsqueeze(0)
        with self._captured_features(feature_layers) as features:
            output = self.model(
                input_ids=torch.tensor([piece], dtype=torch.long, device=self.device), **options
            )
        if self._state_keyword:
            row.state = next((output[key] for key in _STATE_KEYWORDS if key in output), None)
            if row.state is None:
                self._state_keyword = None
        return ModelOutput(output.logits[0], {layer: f[0] for layer, f in features.items()})


def _padded(states: torch.Tensor, count: int) -> torch.Tensor:
    """Repeats the first position in front, as the contract asks for short rows."""
    return torch.cat([states[:1].expand(count - len(states), -1), states])
