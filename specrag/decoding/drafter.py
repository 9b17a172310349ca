"""The contract of a drafter: it proposes what the target may say next, for a batch of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.level import DraftLevel
from specrag.decoding.sampling import TokenSampler
from specrag.decoding.tree import DraftTree
from specrag.errors import FixedBatchError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer
from specrag.registry import Registry


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter may know of a row before its first token.

    Attributes:
        prompt_ids: The prompt that the target sees.
        passages: Further text that the answer may copy from, as token ids; may be empty.
        sampler: How the row chooses its tokens. A drafter with a distribution of its own chooses
            the same way, at the same positions with the same noise, and so agrees most often.
            None stands for greedy.
        rejection: Whether the row is verified by rejection sampling: a drafter with a
            distribution of its own then draws from it with noise of its own, and hands it over
            as ``DraftTree.draft_probs``.
    """

    prompt_ids: tuple[int, ...]
    passages: tuple[tuple[int, ...], ...] = ()
    sampler: TokenSampler | None = None
    rejection: bool = False


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
    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Takes note of tokens that the target committed; called once a round and row.

        The first call of a row follows its prefill. Its features are those of all positions of
        the prompt: the state at position j was computed before token j + 1 was known, and the
        last state said ``token_ids[0]``. From then on state i is that of the position whose next
        token is ``token_ids[i]``; the last token has none yet, it is the root of the next draft.

        Args:
            row: Index of the row.
            token_ids: The accepted tokens of the round and the one that the target added.
            features: Layer to its states ``[positions, hidden]``, for the layers in
                ``Drafter.feature_layers``, and perhaps others; not to be written to. None where
                no layer was asked for.
        """

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        """Proposes as if further tokens had been committed, changing nothing.

        Lets a smaller model verify this drafter's proposals before the target does, and lets a
        round be drafted before the round before it is verified. The default cannot look ahead
        and proposes nothing; with no token ahead it must equal ``propose``.

        Args:
            rows: Indices of running rows.
            budget: The largest tree allowed for each of them.
            ahead: Tokens assumed behind the last committed one, for each of them.
        """
        if not any(ahead):
            return self.propose(rows, budget)
        return [DraftTree() for _ in rows]

    def join(self, context: DraftContext) -> int:
        """Adds a row to a running batch.

        Args:
            context: Of the new row.

        Returns:
            Its index, one above all those before.

        Raises:
            FixedBatchError: These sessions cannot grow.
        """
        raise FixedBatchError(
            f"a session of {type(self).__name__} takes no further rows",
            hint="implement join, or start a new batch",
        )

    def close(self) -> None:  # noqa: B027 - a hook that most sessions need not fill
        """Releases what the session holds; the default holds nothing."""


class ForesightedSession(DraftSession):
    """A session that can always look ahead: what it proposes now is what lies no token ahead."""

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Proposes one tree for each named row.

        Args:
            rows: Indices of the rows still running.
            budget: The largest tree allowed for each of them.
        """
        return self.propose_after(rows, budget, [()] * len(rows))

    @abstractmethod
    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        """Proposes as if further tokens had been committed, changing nothing.

        Args:
            rows: Indices of running rows.
            budget: The largest tree allowed for each of them.
            ahead: Tokens assumed behind the last committed one, for each of them.
        """


class SilentSession(DraftSession):
    """Proposes nothing, whoever the drafter is: for a target that only decodes plainly.

    Args:
        num_rows: Number of rows.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Returns empty trees.

        Args:
            rows: Indices of the rows still running.
            budget: Is not used.
        """
        return [DraftTree() for _ in rows]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Needs to know nothing.

        Args:
            row: Index of the row.
            token_ids: Committed tokens.
            features: Are not needed.
        """

    def join(self, context: DraftContext) -> int:
        """Adds a row.

        Args:
            context: Of the new row.

        Returns:
            Its index.
        """
        self._num_rows += 1
        return self._num_rows - 1


class Drafter(ABC):
    """A way to guess tokens.

    Attributes:
        name: The registry name, used in statistics.
        feature_layers: Target layers whose hidden states it needs, see ``TargetModel``; most need
            none. Known once it is bound, and read when a session begins.
        device: Type of the device that it computes on, such as ``cpu`` or ``cuda``.
        levels: What it computes once for each level of a draft, known once it is bound; nothing
            for drafters that only look something up.
    """

    name: str
    device: str = "cpu"
    levels: tuple[DraftLevel, ...] = ()
    feature_layers: tuple[int, ...] = ()

    def bind(  # noqa: B027 - a hook that most drafters need not fill
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Gets to know the target before the first ``open``; harmless to repeat.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            costs: What a pass of the target costs, when that was measured.

        Raises:
            ConfigError: The drafter cannot draft for this target; the message says why.
        """

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
