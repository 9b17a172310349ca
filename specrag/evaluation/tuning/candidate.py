"""What tuning tries: a drafter with the settings of its drafts, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from specrag.decoding.budget import SpeculationConfig
from specrag.drafters.catalog import Cascade, Expression, Merged, Single, parse

Family = Literal["copying", "model", "both"]

ENOUGH_PROMPTS = 5
"""Of fewer the bootstrap has too few outcomes for an interval of 95 % to mean anything."""

_ORDER = ("goodput", "recent_acceptance", "fixed")  # from what looks after itself to what does not


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to speculate.

    Attributes:
        drafter: Its name.
        num_speculative_tokens: Most drafted tokens a pass.
        branching: Most children of a node of the draft tree; 1 drafts chains.
        policy: Who decides how much is drafted.
    """

    drafter: str
    num_speculative_tokens: int
    branching: int
    policy: str

    @property
    def name(self) -> str:
        """What it is called in a run."""
        tokens = f"{self.num_speculative_tokens} token{'s' * (self.num_speculative_tokens > 1)}"
        shape = f"branching {self.branching}" if self.branching > 1 else "chain"
        return f"{self.drafter}, {self.policy}, {tokens}, {shape}"

    @property
    def complexity(self) -> tuple[int, ...]:
        """Sorts candidates, the simplest first.

        Fewer models, fewer drafters, then the policy that stops by itself where drafts do not
        pay, then narrower and smaller trees.
        """
        singles = list(_singles(parse(self.drafter)))
        return (
            sum(single.kind == "draft" for single in singles),
            len(singles),
            _ORDER.index(self.policy),
            self.branching,
            self.num_speculative_tokens,
        )

    def config(self, base: SpeculationConfig) -> SpeculationConfig:
        """Returns the settings of a generator.

        Args:
            base: Everything that is not tuned.
        """
        return replace(
            base,
            num_speculative_tokens=self.num_speculative_tokens,
            branching=self.branching,
            policy=self.policy,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A candidate and its figures over all prompts that it decoded.

    Attributes:
        candidate: What was measured.
        row: Its row of ``specrag.evaluation.speed.figures``.
    """

    candidate: Candidate
    row: Mapping[str, Any]

    @property
    def speedup(self) -> float:
        """Speed as a multiple of plain decoding's on the same prompts; 0.0 where unknown."""
        return float(self.row["speedup"] or 0.0)

    @property
    def beats_plain(self) -> bool:
        """Whether the whole interval of the speedup lies above 1, over prompts enough for one."""
        low = self.row["speedup_low"]
        return low is not None and low > 1 and self.row["num_prompts"] >= ENOUGH_PROMPTS

    @property
    def interval(self) -> str:
        """The speedup with its interval, for people."""
        low, high = self.row["speedup_low"], self.row["speedup_high"]
        around = "" if low is None else f" ({low:.2f} to {high:.2f})"
        return f"{self.speedup:.2f}x{around}"

    @property
    def figures(self) -> dict[str, Any]:
        """The candidate and its main figures as plain data."""
        names = (
            "tokens_per_second", "speedup", "speedup_low", "speedup_high",
            "mean_acceptance_length", "num_prompts", "equal_share",
        )  # fmt: skip
        return {
            "drafter": self.candidate.drafter,
            "num_speculative_tokens": self.candidate.num_speculative_tokens,
            "branching": self.candidate.branching,
            "policy": self.candidate.policy,
            **{name: self.row[name] for name in names},
        }


def family(drafter: str) -> Family:
    """Tells drafters that copy what stands somewhere from those that run a model.

    Args:
        drafter: Its name.
    """
    kinds = {single.kind == "draft" for single in _singles(parse(drafter))}
    if len(kinds) > 1:
        return "both"
    return "model" if kinds == {True} else "copying"


def _singles(expression: Expression) -> Iterator[Single]:
    if isinstance(expression, Single):
        yield expression
        return
    if isinstance(expression, Cascade):
        yield from expression.levels
        return
    if isinstance(expression, Merged):
        inner: tuple[Expression, ...] = expression.parts
    else:
        inner = tuple(drafter for _, drafter in expression.choices)
    for part in inner:
        yield from _singles(part)
