"""What the measurements say: which drafter and settings to use here, and when to use none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from specrag.decoding.analysis import break_even_alpha
from specrag.decoding.budget import PassCosts
from specrag.evaluation.tuning.candidate import (
    ENOUGH_PROMPTS,
    Candidate,
    Family,
    Result,
    family,
)
from specrag.evaluation.tuning.grid import (
    GAMMAS,
    largest_batch_as_sent,
    largest_paying_batch,
    rates,
)

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)

_TIE = 0.03  # what is nearer to the fastest than this is as fast, and the simpler one is taken
_ALWAYS = 0.005
_PLAIN = "none"
_FAMILIES: Mapping[Family, str] = {
    "copying": "copying from the text",
    "model": "a draft model",
    "both": "a draft model together with copying",
}


@dataclass(frozen=True, slots=True)
class DrafterFigures:
    """What was found out about one drafter.

    Attributes:
        drafter: Its name.
        usual: Its speed as it is used without tuning.
        chain: Its longest chains, whose acceptance is known at every depth.
        level: What it takes for each level of a draft, a pass of the target being 1.0.
    """

    drafter: str
    usual: Result
    chain: Result
    level: float

    @property
    def figures(self) -> dict[str, Any]:
        """The figures as plain data."""
        names = ("tokens_per_second", "speedup", "speedup_low", "speedup_high")
        return {
            "drafter": self.drafter,
            "category": "all",
            "family": family(self.drafter),
            **{name: self.usual.row[name] for name in names},
            "mean_acceptance_length": self.usual.row["mean_acceptance_length"],
            "acceptance": self.chain.row["acceptance"],
            "acceptance_by_depth": self.chain.row["acceptance_by_depth"],
            "draft_level": self.level,
            "num_prompts": self.usual.row["num_prompts"],
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """What to use.

    Attributes:
        drafter: Its name; ``none`` where speculation does not pay.
        num_speculative_tokens: Most drafted tokens a pass.
        branching: Most children of a node of the draft tree.
        policy: Who decides how much is drafted.
        speculate: Whether speculation pays at all.
        reasons: Sentences that say why, and when not to.
        break_even_acceptance: Acceptance of a drafted token under which no draft pays here; None
            where none ever does.
        largest_paying_batch: Most rows of a batch for which drafts pay; 0 for none.
    """

    drafter: str
    num_speculative_tokens: int
    branching: int
    policy: str
    speculate: bool
    reasons: list[str] = field(default_factory=list)
    break_even_acceptance: float | None = None
    largest_paying_batch: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the advice as plain data."""
        return asdict(self)


def choose(finals: Sequence[Result]) -> Result | None:
    """Returns what to use, None for plain decoding.

    What beats plain decoding by its whole interval, and of that the fastest, or what is simpler
    and within three per cent of it.

    Args:
        finals: Measured on the same prompts in the same run.
    """
    winning = [result for result in finals if result.beats_plain]
    if not winning:
        return None
    least = (1 - _TIE) * max(result.speedup for result in winning)
    equal = [result for result in winning if result.speedup >= least]
    return min(equal, key=lambda result: (result.candidate.complexity, -result.speedup))


def advise(
    finals: Sequence[Result],
    drafters: Sequence[DrafterFigures],
    costs: PassCosts,
    *,
    min_acceptance: float,
    fallback: Candidate,
) -> Advice:
    """Returns what to use and why.

    Args:
        finals: The best candidates, measured on the same prompts in the same run.
        drafters: All drafters, at least one.
        costs: What a pass costs.
        min_acceptance: Acceptance under which a policy pauses speculation.
        fallback: Its settings are kept where nothing pays.
    """
    chosen = choose(finals)
    used = chosen.candidate if chosen else fallback
    known = {found.drafter: found for found in drafters}
    fastest = max(drafters, key=lambda found: found.usual.speedup)
    leading = known[chosen.candidate.drafter] if chosen else fastest
    paying = break_even_alpha(leading.level, costs, max(GAMMAS))
    # The drafts that were sent, or chains: a policy that limits itself would shorten them.
    batch = max(
        largest_paying_batch(rates(leading.chain.row), costs, leading.level, BATCH_SIZES),
        largest_batch_as_sent(chosen.row, costs, leading.level, BATCH_SIZES) if chosen else 0,
    )
    reasons = [
        *(_winning(chosen, finals) if chosen else _losing(finals)),
        *_families(drafters),
        _switching_off(paying, leading, min_acceptance),
        *([_batches(batch)] if chosen else []),
    ]
    return Advice(
        used.drafter if chosen else _PLAIN,
        used.num_speculative_tokens,
        used.branching,
        used.policy,
        chosen is not None,
        reasons,
        None if paying is None else round(paying, 4),
        batch if chosen else 0,
    )


def _winning(chosen: Result, finals: Sequence[Result]) -> list[str]:
    row = chosen.row
    said = [
        f"Speculation pays: {chosen.candidate.name} decodes {row['tokens_per_second']:.1f} tokens "
        f"a second, {chosen.interval} plain decoding, over {row['num_prompts']} prompts."
    ]
    fastest = max((result for result in finals if result.beats_plain), key=lambda r: r.speedup)
    if fastest is not chosen:
        said.append(
            f"{fastest.candidate.name} was hardly faster ({fastest.interval}); the simpler one is "
            "taken."
        )
    return said


def _losing(finals: Sequence[Result]) -> list[str]:
    if not finals:
        return ["Nothing could be measured to the end, so plain decoding is kept."]
    best = max(finals, key=lambda result: result.speedup)
    count = best.row["num_prompts"]
    if count < ENOUGH_PROMPTS:
        return [
            f"The fastest, {best.candidate.name}, is {best.interval} plain decoding, but over "
            f"{count} prompts that is no proof, so plain decoding is kept: measure on "
            f"{ENOUGH_PROMPTS} or more, or for longer."
        ]
    return [
        f"Speculation does not pay for sure: the fastest, {best.candidate.name}, is "
        f"{best.interval} plain decoding over {count} prompts, and only an "
        "interval wholly above 1 counts."
    ]


def _families(drafters: Sequence[DrafterFigures]) -> list[str]:
    best: dict[Family, DrafterFigures] = {}
    for found in sorted(drafters, key=lambda found: -found.usual.speedup):
        best.setdefault(family(found.drafter), found)
    ranked = [
        f"{_FAMILIES[kind]} {found.usual.speedup:.2f}x ({found.drafter}, "
        f"{_percent(found.chain.row['acceptance'])} accepted at the first token, a level of a "
        f"draft costs {found.level:.2f} of a pass)"
        for kind, found in best.items()
    ]
    said = [f"By family, before tuning: {'; '.join(ranked)}."]
    if set(best) == {"copying"}:
        said.append("No draft model was tried; --draft-model names one of the same family.")
    return said


def _switching_off(paying: float | None, leading: DrafterFigures, watched: float) -> str:
    if paying is None:
        return "At these costs of a pass not even certain acceptance pays."
    if paying < _ALWAYS:
        return "At these costs of a pass a draft pays however few of its tokens are accepted."
    said = (
        f"Switch speculation off where fewer than {_percent(paying)} of the drafted tokens are "
        f"accepted: at these costs of a pass no draft of {leading.drafter} pays then."
    )
    if watched:
        said += (
            f" The policies goodput and recent_acceptance do so by themselves; min_acceptance is "
            f"{watched:.2f}."
        )
    return said


def _batches(largest: int) -> str:
    if not largest:
        return "By the costs of a pass alone it would not pay; only the measured speed says so."
    if largest == BATCH_SIZES[-1]:
        return f"By the costs of a pass it still pays for {largest} rows at once."
    return (
        f"By the costs of a pass it pays for up to {largest} rows at once; for more of them use "
        "the drafter none."
    )


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"
