"""Drafters that are used together: bound, opened, fed and closed as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import torch

from specrag.decoding.budget import PassCosts
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.level import DraftLevel
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


class Members:
    """Drafters of different names.

    Args:
        drafters: At least one.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.drafters = tuple(drafters)
        self.names = tuple(drafter.name for drafter in drafters)
        assert len(set(self.names)) == len(self.names) > 0, "members are told apart by their names"

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Target layers that any of them needs; may change when they are bound."""
        needed = [layer for drafter in self.drafters for layer in drafter.feature_layers]
        return tuple(dict.fromkeys(needed))

    @property
    def levels(self) -> tuple[DraftLevel, ...]:
        """What a level of all their drafts takes; known when they are bound."""
        return tuple(level for drafter in self.drafters for level in drafter.levels)

    @property
    def device(self) -> str:
        """Where the models of their drafts compute, the processor without one."""
        return next((drafter.device for drafter in self.drafters if drafter.levels), "cpu")

    def bind(self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None) -> None:
        """Binds each of them.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            costs: What a pass of the target costs.

        Raises:
            ConfigError: One cannot draft for this target.
        """
        for drafter in self.drafters:
            drafter.bind(target, tokenizer, costs)

    def open(self, contexts: Sequence[DraftContext]) -> MemberSessions:
        """Opens a session of each; none stays open when one of them fails to.

        Args:
            contexts: One for each row.
        """
        sessions = []
        with ExitStack() as opened:
            for drafter in self.drafters:
                sessions.append(drafter.open(contexts))
                opened.callback(sessions[-1].close)
            opened.pop_all()
        return MemberSessions(sessions, len(contexts))


class MemberSessions:
    """The sessions of members over the same batch.

    Args:
        sessions: Opened for the same rows, in the order of the members.
        num_rows: Number of rows.
    """

    def __init__(self, sessions: Sequence[DraftSession], num_rows: int) -> None:
        self._sessions = tuple(sessions)
        # Which row of each member is meant: a join that failed halfway leaves some of them ahead.
        self._rows = [(row,) * len(self._sessions) for row in range(num_rows)]

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, member: int) -> DraftSession:
        """Returns the session of a member.

        Args:
            member: Its place among the members.
        """
        return self._sessions[member]

    def rows_of(self, member: int, rows: Sequence[int]) -> list[int]:
        """Returns what a member calls rows.

        Args:
            member: Its place among the members.
            rows: Rows of the batch.
        """
        return [self._rows[row][member] for row in rows]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Passes committed tokens to each member.

        Args:
            row: A row of the batch.
            token_ids: The tokens in order.
            features: The target's states, of the layers that any of them needs.
        """
        for session, known_as in zip(self._sessions, self._rows[row], strict=True):
            session.observe(known_as, token_ids, features)

    def join(self, context: DraftContext) -> int:
        """Adds a row to the session of each member.

        Args:
            context: Of the new row.

        Returns:
            Its index in the batch.

        Raises:
            FixedBatchError: A session cannot grow; the batch is then as before.
        """
        self._rows.append(tuple([session.join(context) for session in self._sessions]))
        return len(self._rows) - 1

    def close(self) -> None:
        """Closes the session of each member, also when another one fails to."""
        with ExitStack() as closing:
            for session in self._sessions:
                closing.callback(session.close)
