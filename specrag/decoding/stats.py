"""Counters of the decoding loop; every ratio is derived from them here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, field

from specrag.decoding.tree import DraftTree


@dataclass(slots=True)
class DecodingStats:
    """What speculation did for one answer. Integers only, so that statistics add up.

    Attributes:
        num_passes: Passes of the target after prefill.
        num_drafts: Passes that verified a draft.
        num_draft_tokens: Tokens drafted.
        num_accepted_tokens: Drafted tokens that were emitted.
        num_accepted_tokens_per_pos: The same by depth in the draft, first position first.
        num_tokens: Tokens emitted, the first one (which prefill gives) included.
    """

    num_passes: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)
    num_tokens: int = 0

    def record(self, tree: DraftTree, num_accepted: int, num_emitted: int) -> None:
        """Counts one pass.

        Args:
            tree: What was verified; may be empty.
            num_accepted: Accepted tokens that were emitted.
            num_emitted: Emitted tokens, the recovered or bonus token included.
        """
        self.num_passes += 1
        self.num_tokens += num_emitted
        if not len(tree):
            return
        self.num_drafts += 1
        self.num_draft_tokens += len(tree)
        self.num_accepted_tokens += num_accepted
        missing = tree.max_depth - len(self.num_accepted_tokens_per_pos)
        self.num_accepted_tokens_per_pos.extend([0] * max(0, missing))
        for depth in range(num_accepted):
            self.num_accepted_tokens_per_pos[depth] += 1

    def add(self, other: DecodingStats) -> None:
        """Adds the counters of another answer.

        Args:
            other: Is left as it is.
        """
        self.num_passes += other.num_passes
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        self.num_tokens += other.num_tokens
        mine, theirs = self.num_accepted_tokens_per_pos, other.num_accepted_tokens_per_pos
        mine.extend([0] * max(0, len(theirs) - len(mine)))
        for depth, count in enumerate(theirs):
            mine[depth] += count

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


@dataclass(slots=True)
class DecodingTimings:
    """Where the time of a session went, in milliseconds of wall clock, all rows together.

    Attributes:
        prefill_ms: Evaluating the prompts, first token included.
        draft_ms: Proposing.
        verify_ms: Passes of the target, choice of tokens and commit.
    """

    prefill_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0

    @property
    def decode_ms(self) -> float:
        """Everything after the first token."""
        return self.draft_ms + self.verify_ms
