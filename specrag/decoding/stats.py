"""Counters of the decoding loop; every ratio is derived from them here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specrag.decoding.tree import DraftTree


@dataclass(slots=True)
class DraftCounters:
    """Counters of one drafter, or of one kind of text.

    Attributes:
        num_passes: Passes it had a part in: for a drafter those that verified a draft of it, for
            a kind of text all of them.
        num_drafts: Passes that verified a draft of it.
        num_draft_tokens: Tokens it drafted.
        num_accepted_tokens: Those that were emitted.
    """

    num_passes: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    def add(self, other: DraftCounters) -> None:
        """Adds other counters.

        Args:
            other: Is left as it is.
        """
        self.num_passes += other.num_passes
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens


@dataclass(slots=True)
class DecodingStats:
    """What speculation did for one answer. Integers only, so that statistics add up.

    Attributes:
        num_passes: Passes of the target after prefill.
        num_drafts: Passes that verified a draft.
        num_draft_tokens: Tokens drafted and verified.
        num_accepted_tokens: Drafted tokens that were emitted.
        num_accepted_tokens_per_pos: The same by depth in the draft, first position first.
        num_tokens: Tokens emitted, the first one (which prefill gives) included.
        num_cached_tokens: Prompt tokens whose keys and values an earlier request had left.
        num_unsent_tokens: Tokens drafted but not verified, because they would not pay.
        num_switched_off: Times that the policy switched speculation off.
        num_off_passes: Passes while it was off.
        num_probes: Times that it was tried again.
        num_ahead_drafts: Rounds drafted while the round before them was verified.
        num_ahead_kept: Those that turned out right and were used.
        drafters: Counters by drafter; a token that several proposed counts for each of them.
        domains: Counters by kind of text, where the drafter tells kinds apart.
    """

    num_passes: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)
    num_tokens: int = 0
    num_cached_tokens: int = 0
    num_unsent_tokens: int = 0
    num_switched_off: int = 0
    num_off_passes: int = 0
    num_probes: int = 0
    num_ahead_drafts: int = 0
    num_ahead_kept: int = 0
    drafters: dict[str, DraftCounters] = field(default_factory=dict)
    domains: dict[str, DraftCounters] = field(default_factory=dict)

    def record(
        self, tree: DraftTree, path: Sequence[int], num_emitted: int, drafter: str = ""
    ) -> None:
        """Counts one pass.

        Args:
            tree: What was verified; may be empty.
            path: Accepted nodes whose tokens were emitted.
            num_emitted: Emitted tokens, the recovered or bonus token included.
            drafter: Who proposed the nodes that name no origin.
        """
        self.num_passes += 1
        self.num_tokens += num_emitted
        self._record_drafters(tree, path, drafter)
        self._record_domain(tree, path)
        if not len(tree):
            return
        self.num_drafts += 1
        self.num_draft_tokens += len(tree)
        self.num_accepted_tokens += len(path)
        missing = tree.max_depth - len(self.num_accepted_tokens_per_pos)
        self.num_accepted_tokens_per_pos.extend([0] * max(0, missing))
        for depth in range(len(path)):
            self.num_accepted_tokens_per_pos[depth] += 1

    def add(self, other: DecodingStats) -> None:
        """Adds the counters of another answer.

        Args:
            other: Is left as it is.
        """
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        mine, theirs = self.num_accepted_tokens_per_pos, other.num_accepted_tokens_per_pos
        mine.extend([0] * max(0, len(theirs) - len(mine)))
        for depth, count in enumerate(theirs):
            mine[depth] += count
        for kept, added in ((self.drafters, other.drafters), (self.domains, other.domains)):
            for name, counters in added.items():
                kept.setdefault(name, DraftCounters()).add(counters)

    def to_dict(self) -> dict[str, Any]:
        """Returns all counters and the mean acceptance length as plain data."""
        return {**asdict(self), "mean_acceptance_length": round(self.mean_acceptance_length, 4)}

    def _record_drafters(self, tree: DraftTree, path: Sequence[int], drafter: str) -> None:
        origins = tree.origins or ((drafter,),) * len(tree)
        for name in {name for names in origins for name in names} if len(tree) else ():
            counters = self.drafters.setdefault(name, DraftCounters())
            counters.num_passes += 1
            counters.num_drafts += 1
            counters.num_draft_tokens += sum(name in names for names in origins)
            counters.num_accepted_tokens += sum(name in origins[node] for node in path)

    def _record_domain(self, tree: DraftTree, path: Sequence[int]) -> None:
        if not tree.domain:
            return
        counters = self.domains.setdefault(tree.domain, DraftCounters())
        counters.num_passes += 1
        counters.num_drafts += len(tree) > 0
        counters.num_draft_tokens += len(tree)
        counters.num_accepted_tokens += len(path)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens emitted per pass, recovered or bonus token included; plain decoding has 1.0.

        Passes without a draft count as passes, so this is the factor by which speculation cut
        the number of passes.
        """
        if not self.num_passes:
            return 1.0
        return (self.num_passes + self.num_accepted_tokens) / self.num_passes

    @property
    def draft_acceptance_rate(self) -> float:
        """Accepted per drafted token, 0.0 when nothing was drafted; meaningful for chains only."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0


_COUNTS = tuple(item.name for item in fields(DecodingStats) if item.type == "int")


@dataclass(slots=True)
class DecodingTimings:
    """Where the time of a session or of a row went, in milliseconds of wall clock.

    Attributes:
        prefill_ms: Evaluating the prompts, first token included.
        draft_ms: Proposing.
        verify_ms: Passes of the target, choice of tokens and commit.
    """

    prefill_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0

    def add(self, other: DecodingTimings) -> None:
        """Adds other times.

        Args:
            other: Is left as it is.
        """
        self.prefill_ms += other.prefill_ms
        self.draft_ms += other.draft_ms
        self.verify_ms += other.verify_ms

    @property
    def decode_ms(self) -> float:
        """Everything after the first token."""
        return self.draft_ms + self.verify_ms
