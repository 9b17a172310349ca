"""HuggingFaceTarget: an unmodified transformers causal LM that evaluates trees of drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specrag.errors import ModelError
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive, visible_slots
from specrag.models.suitability import tree_obstacle
from specrag.models.target import ModelOutput, TreePass
from specrag.models.transformers_target import TransformersTarget, forward_parameters
from specrag.models.windows import attention_windows

PREFILL_CHUNK = 512
"""Prompt tokens per pass: bounds the mask and the activations, costs nothing in speed."""


class HuggingFaceTarget(TransformersTarget):
    """A causal LM whose attention takes any tree of drafts.

    Trees go in as an additive 4-D attention mask with explicit positions, the cache is ours,
    features come out through forward hooks.

    Args:
        model: A loaded causal LM.
        name: What users call it.

    Raises:
        ModelError: The architecture keeps state that cannot be rolled back, or does not take the
            positions of a tree.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__(model, name)
        if obstacle := tree_obstacle(model):
            raise ModelError(
                f"the model {name!r} cannot evaluate a tree of drafts: {obstacle}",
                hint="load_target decodes it without speculation; Llama, Qwen and most others do "
                "speculate",
            )
        self.num_layers = int(model.config.get_text_config().num_hidden_layers)
        # The keyword changed its name within transformers 5.
        taken = forward_parameters(model)
        self._cache_keyword = "cache" if "cache" in taken else "past_key_values"
        self._windows = attention_windows(model)
        self.max_context = min(self.max_context, self._windows.max_context or self.max_context)

    def new_cache(self, batch_size: int, capacity: int = 512) -> KVCache:
        """Returns an empty cache for this model.

        Args:
            batch_size: Number of rows.
            capacity: Tokens to reserve for each row.
        """
        return KVCache(self.num_layers, batch_size, min(capacity, self.max_context))

    @torch.inference_mode()
    def prefill(
        self,
        prompts: Sequence[Sequence[int]],
        cache: KVCache,
        num_logits: int = 1,
        feature_layers: Sequence[int] = (),
    ) -> ModelOutput:
        """Evaluates prompts in chunks, see the contract.

        Args:
            prompts: Token ids of each row.
            cache: The prompts are appended to it.
            num_logits: Last positions of each row to return logits for.
            feature_layers: Layers to return the hidden states of, at all positions.

        Returns:
            Logits ``[batch, num_logits, vocab]`` and features ``[batch, longest, hidden]``.
        """
        ends = torch.tensor([len(prompt) for prompt in prompts]).unsqueeze(1)
        wanted = (ends - num_logits + torch.arange(num_logits)).clamp(min=0)
        logits: torch.Tensor | None = None
        features: dict[int, list[torch.Tensor]] = {}
        for start in range(0, int(ends.max()), PREFILL_CHUNK):
            pieces = [list(prompt[start : start + PREFILL_CHUNK]) for prompt in prompts]
            width = max(len(piece) for piece in pieces)
            rows, slots = ((wanted >= start) & (wanted < start + width)).nonzero(as_tuple=True)
            places = wanted[rows, slots] - start
            columns, picked = torch.unique(places, return_inverse=True)
            output = self._run(_chains(pieces, width), cache, columns, feature_layers)
            cache.commit([range(len(piece)) for piece in pieces])
            logits = _placed(logits, output.logits[rows, picked], rows, slots, wanted.shape)
            for layer, states in output.features.items():
                features.setdefault(layer, []).append(states)
        assert logits is not None, "prefill got rows without tokens"
        return ModelOutput(logits, {layer: torch.cat(f, dim=1) for layer, f in features.items()})

    @torch.inference_mode()
    def forward(
        self, tree_pass: TreePass, cache: KVCache, feature_layers: Sequence[int] = ()
    ) -> ModelOutput:
        """Evaluates one tree for each row, or one more level of it, see the contract.

        Args:
            tree_pass: The nodes, ``[batch, nodes]``.
            cache: Committed tokens of each row; the nodes become pending in it.
            feature_layers: Layers to return the hidden states of.

        Returns:
            Logits ``[batch, nodes, vocab]`` and features ``[batch, nodes, hidden]``.
        """
        return self._run(tree_pass, cache, None, feature_layers)

    def _run(
        self,
        tree_pass: TreePass,
        cache: KVCache,
        columns: torch.Tensor | None,
        feature_layers: Sequence[int],
    ) -> ModelOutput:
        """Runs the model over nodes; ``columns`` names those whose logits are needed."""
        num_nodes = tree_pass.token_ids.shape[1]
        cache.begin_pass(num_nodes, kept=tree_pass.visible.shape[2] - num_nodes)
        lengths = torch.tensor(cache.lengths, device=self.device).unsqueeze(1)
        return self._evaluated(
            tree_pass.token_ids.to(self.device),
            lengths + tree_pass.depths.to(self.device),
            self._masks(tree_pass, cache),
            cache,
            columns,
            feature_layers,
        )

    def _evaluated(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        masks: torch.Tensor | dict[str, torch.Tensor],
        cache: KVCache,
        columns: torch.Tensor | None,
        feature_layers: Sequence[int],
    ) -> ModelOutput:
        """Computes a pass that the cache has begun; ids and positions ``[batch, nodes]``."""
        options: dict[str, Any] = {self._cache_keyword: cache}
        if columns is not None and self._trims_logits:
            options["logits_to_keep"] = columns.to(self.device)
        with self._captured_features(feature_layers) as features:
            output = self.model(
                input_ids=token_ids,
                position_ids=positions,
                attention_mask=masks,
                use_cache=True,
                **options,
            )
        logits = output.logits
        if columns is not None and not self._trims_logits:
            logits = logits[:, columns.to(self.device)]
        return ModelOutput(logits, features)

    def _masks(self, tree_pass: TreePass, cache: KVCache) -> torch.Tensor | dict[str, torch.Tensor]:
        """One mask ``[batch, 1, nodes, slots]``, or one for each kind of layer."""
        visible, depths = tree_pass.visible.to(self.device), tree_pass.depths.to(self.device)
        masks = {
            kind: visible_slots(visible, depths, cache.lengths, window, cache.num_slots)
            for kind, window in self._windows.by_kind.items()
        }
        masks = {kind: additive(allowed, self.dtype) for kind, allowed in masks.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))


def _chains(pieces: Sequence[Sequence[int]], width: int) -> TreePass:
    """A prompt is a tree without branches: causal visibility, padded at the end."""
    token_ids = torch.zeros(len(pieces), width, dtype=torch.long)
    for row, piece in enumerate(pieces):
        token_ids[row, : len(piece)] = torch.tensor(piece, dtype=torch.long)
    # Padding repeats the last position: one further on might lie outside the context.
    ends = torch.tensor([max(0, len(piece) - 1) for piece in pieces]).unsqueeze(1)
    depths = torch.arange(width).expand(len(pieces), width).minimum(ends)
    visible = torch.ones(width, width, dtype=torch.bool).tril().expand(len(pieces), width, width)
    return TreePass(token_ids, depths, visible)


def _placed(
    collected: torch.Tensor | None,
    found: torch.Tensor,
    rows: torch.Tensor,
    slots: torch.Tensor,
    shape: torch.Size,
) -> torch.Tensor:
    """Puts what one chunk gave, ``[found, width]``, into ``[batch, num_logits, width]``."""
    if collected is None:
        collected = found.new_zeros(*shape, found.shape[-1])
    collected[rows, slots] = found
    return collected
