"""CorpusReport: what a corpus holds, and what the run that reports has added."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specrag.training.corpus_row import CorpusRow


@dataclass(slots=True)
class CorpusCounts:
    """Counts of the rows of a corpus.

    Attributes:
        num_rows: Answers.
        num_tokens: Tokens of them.
        num_finished: Answers that ended by themselves.
        kinds: Answers by kind.
    """

    num_rows: int = 0
    num_tokens: int = 0
    num_finished: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, row: CorpusRow) -> None:
        """Counts one more row.

        Args:
            row: The row.
        """
        self.num_rows += 1
        self.num_tokens += len(row.response_ids)
        self.num_finished += row.finished
        self.kinds[row.kind] += 1

    @property
    def share_finished(self) -> float:
        """Share of the answers that ended by themselves."""
        return self.num_finished / max(1, self.num_rows)


@dataclass(frozen=True, slots=True)
class PromptCounts:
    """Where the prompts of a corpus came from, and which were left out.

    Attributes:
        num_prompts: That could be answered.
        num_own: Instructions that the target made up.
        num_own_attempts: Attempts at such.
        num_excluded: Left out because an excluded file holds them.
        num_repeated: Left out because an earlier one says the same.
        num_too_long: Left out for their length.
    """

    num_prompts: int
    num_own: int
    num_own_attempts: int
    num_excluded: int
    num_repeated: int
    num_too_long: int


@dataclass(frozen=True, slots=True)
class CorpusReport:
    """What a run found and did.

    Attributes:
        path: File of the corpus.
        counts: All of its rows.
        prompts: Its prompts.
        num_new_rows: Rows that this run added.
        num_new_tokens: Their tokens.
        seconds: That answering took in this run.
    """

    path: Path
    counts: CorpusCounts
    prompts: PromptCounts
    num_new_rows: int
    num_new_tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Speed of this run; 0 when it added nothing."""
        return self.num_new_tokens / self.seconds if self.num_new_tokens else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain data, the ratios included."""
        return {
            "path": str(self.path),
            **asdict(self.counts),
            "kinds": dict(self.counts.kinds),
            "share_finished": round(self.counts.share_finished, 4),
            **asdict(self.prompts),
            "num_new_rows": self.num_new_rows,
            "num_new_tokens": self.num_new_tokens,
            "seconds": round(self.seconds, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
        }
