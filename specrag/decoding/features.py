"""FeatureLog: the target's hidden states of each row, on their way to drafter and prefix cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch


class FeatureLog:
    """What the passes of one session brought to each row, of the layers that its drafter reads.

    Costs nothing where there are no such layers.

    Args:
        layers: See ``Drafter.feature_layers``.
        keeps_all: Whether ``take_all`` will be asked for; if not, only the newest are held.
    """

    def __init__(self, layers: Sequence[int], *, keeps_all: bool) -> None:
        self.layers = tuple(dict.fromkeys(layers))
        self._keeps_all = keeps_all
        self._newest: dict[int, Mapping[int, torch.Tensor]] = {}
        self._all: dict[int, list[Mapping[int, torch.Tensor]]] = {}

    def add(self, row: int, features: Mapping[int, torch.Tensor]) -> None:
        """Takes the states of positions behind all those before.

        Args:
            row: Index of the row.
            features: Layer to ``[positions, hidden]``.
        """
        if not self.layers:
            return
        self._newest[row] = features
        if self._keeps_all:
            self._all.setdefault(row, []).append(features)

    def add_path(
        self,
        row: int,
        features: Mapping[int, torch.Tensor],
        slot: int,
        path: Sequence[int],
        num_emitted: int,
    ) -> None:
        """Takes the states of the nodes of a pass that said the emitted tokens.

        Args:
            row: Index of the row.
            features: Layer to ``[batch, nodes, hidden]``, root first.
            slot: Place of the row in the batch.
            path: Accepted nodes of its tree; the root, which is none of them, is node 0 here.
            num_emitted: Emitted tokens; an answer may end before the last accepted node.
        """
        if not self.layers:
            return
        nodes = torch.tensor([0, *(node + 1 for node in path)][:num_emitted])
        # Copies: a view would hold on to the states of the whole pass.
        self.add(
            row,
            {
                layer: states[slot].index_select(0, nodes.to(states.device))
                for layer, states in features.items()
            },
        )

    def newest(self, row: int) -> Mapping[int, torch.Tensor] | None:
        """Hands over what came last, once; None where no layer was asked for.

        Args:
            row: Index of the row.
        """
        return self._newest.pop(row, None)

    @torch.inference_mode()
    def take_all(self, row: int) -> dict[int, torch.Tensor]:
        """Hands over everything of a row, as copies, and forgets it.

        Args:
            row: Index of the row.

        Returns:
            Layer to ``[length, hidden]``.
        """
        pieces = self._all.pop(row, [])
        layers = self.layers if pieces else ()
        return {layer: torch.cat([piece[layer] for piece in pieces]) for layer in layers}
