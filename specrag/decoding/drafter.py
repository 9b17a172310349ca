"""The contract of a drafter: it proposes what the target may say next, for a batch of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specrag.decoding.budget import DraftBudget
from specrag.decoding.tree import DraftTree
from specrag.registry import Registry


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter may know of a row before its first token.

    Attributes:
        prompt_ids: The prompt that the target sees.
        passages: Further text that the answer may copy from, as token ids; may be empty.
    """

    prompt_ids: tuple[int, ...]
    passages: tuple[tuple[int, ...], ...] = ()


class DraftSession(ABC):
    """The state of a drafter over one batch, from prefill to the last token."""

    @abstractmethod
    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Proposes one tree for each named row, below its last committed token.

        Changes no state that a later ``observe`` depends on: a proposal is only a guess. Any tree
        is safe, verification keeps the output exact; an empty tree means "decode plainly".

        Args:
            rows: Indices of the rows still running, in the order of ``Drafter.open``.
            budget: The largest tree allowed for each of them.
        """

    @abstractmethod
    def observe(self, row: int, token_ids: Sequence[int]) -> None:
        """Takes note of tokens that the target committed; called once a round and row.

        Args:
            row: Index of the row.
            token_ids: The accepted tokens of the round and the one that the target added.
        """

    def close(self) -> None:  # noqa: B027 - a hook that most sessions need not fill
        """Releases what the session holds; the default holds nothing."""


class Drafter(ABC):
    """A way to guess tokens.

    Attributes:
        name: The registry name, used in statistics.
        feature_layers: Target layers whose hidden states it needs; most need none.
    """

    name: str
    feature_layers: tuple[int, ...] = ()

    @abstractmethod
    def open(self, contexts: Sequence[DraftContext]) -> DraftSession:
        """Starts drafting for a batch.

        Args:
            contexts: One for each row; nothing is committed beyond the prompts yet.
        """


_MAKERS: Registry[Callable[[str], Drafter]] = Registry(
    "maker of drafters", {"named": "specrag.drafters.catalog:make_drafter"}
)


def named_drafter(spec: str) -> Drafter:
    """Makes a drafter from the name that a user types.

    The implementations lie above this layer; they are reached by name only, when asked for.

    Args:
        spec: Such as ``suffix`` or ``none``.

    Raises:
        ConfigError: The name is unknown.
    """
    return _MAKERS.get("named")(spec)
