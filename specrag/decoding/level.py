"""DraftLevel: what a drafter computes once for each level of a draft, to be timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specrag.decoding.tree import DraftTree, pack
from specrag.models.target import TargetModel

SIZES = (1, 2, 4, 8, 16, 32)
"""Nodes of the passes that are timed."""

CONTEXT_TOKENS = 128
"""Tokens before them."""


class DraftLevel(Protocol):
    """One level of a draft."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What its cost depends on, apart from the machine."""

    def prepare(self) -> Callable[[], object]:
        """Returns an action that computes one level, and waits for it to be done."""


@dataclass(frozen=True, slots=True)
class ModelLevel:
    """A pass of a draft model.

    Attributes:
        model: The draft model.
    """

    model: TargetModel

    @property
    def identity(self) -> tuple[object, ...]:
        """What its cost depends on."""
        return self.model.fingerprint, self.model.dtype, self.model.device

    def prepare(self) -> Callable[[], object]:
        """Returns a pass over one node."""
        return pass_actions(self.model, [1])[0]


def pass_actions(target: TargetModel, sizes: Sequence[int]) -> list[Callable[[], object]]:
    """Prepares passes of some sizes behind one context of usual length.

    Args:
        target: Any model.
        sizes: Nodes of each pass.
    """
    context = max(1, min(CONTEXT_TOKENS, target.max_context - max(SIZES)))
    cache = target.new_cache(1, context + max(sizes))
    target.prefill([[index % target.vocab_size for index in range(context)]], cache)

    def prepared(size: int) -> Callable[[], object]:
        tree_pass = pack([0], [DraftTree.chain([0] * (size - 1))])
        # Nothing is committed, so the next pass finds the same context. Reading a figure back
        # waits for an accelerator to finish.
        return lambda: target.forward(tree_pass, cache).logits[0, -1, 0].item()

    return [prepared(size) for size in sizes]
