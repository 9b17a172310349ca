"""What to use for code, long text, chat, streaming and batches, by the figures of a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specrag.decoding.analysis import (
    best_gamma,
    break_even_epsilon,
    round_cost,
    speedup,
)
from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError, suggest

_EVEN = 1.5  # longest wait for a token, in plain passes, that still looks like a steady stream
_WORTH_IT = 1.1  # a smaller speedup is within the error of the calculation
_EXAMPLE_BATCH = 16  # rows, where the user named none


@dataclass(frozen=True, slots=True)
class Situation:
    """What the advice depends on.

    Attributes:
        epsilon: Time to draft one token, as a share of a plain pass.
        costs: What a pass costs by its size; None makes all sizes cost the same.
        batch_size: Rows that share a pass.
        max_gamma: Longest draft to consider.
    """

    epsilon: float = 0.0
    costs: PassCosts | None = None
    batch_size: int = 1
    max_gamma: int = 16

    def best(self, alpha: float, epsilon: float | None = None) -> tuple[int, float]:
        """Returns the best draft length and its speedup.

        Args:
            alpha: Acceptance.
            epsilon: Instead of the situation's own.
        """
        spent = self.epsilon if epsilon is None else epsilon
        size = self.batch_size
        gamma = best_gamma(alpha, spent, self.costs, self.max_gamma, batch_size=size)
        return gamma, speedup(alpha, gamma, spent, self.costs, batch_size=size)


@dataclass(frozen=True, slots=True)
class Use:
    """One kind of work.

    Attributes:
        drafter: What to begin with; it needs no model of its own.
        alternatives: Drafters to compare it with; MODEL stands for a small draft model.
        policy: Who decides how much is drafted.
        reason: Why these.
        published: The article's advice and claim, for the kind of drafter it has in mind.
        published_alpha: Its lowest and highest acceptance.
        published_speedup: Its lowest and highest speedup; for batches the highest is a bound.
    """

    drafter: str
    alternatives: tuple[str, ...]
    policy: str
    reason: str
    published: str
    published_alpha: tuple[float, float]
    published_speedup: tuple[float, float]


USES: dict[str, Use] = {
    "code": Use(
        "suffix",
        ("suffix+draft:MODEL", "prompt_lookup"),
        "goodput",
        "Code repeats its names and its patterns, and the suffix automaton copies them from "
        "prompt and output without a model. Keep branching above 1: a tree holds the "
        "alternatives where a name may go on in two ways. Learned heads (EAGLE, Medusa) come "
        "later and will stand behind the suffix drafter.",
        "EAGLE-2",
        (0.85, 0.92),
        (3.0, 4.0),
    ),
    "long_text": Use(
        "suffix+datastore:handbook",
        ("suffix", "prompt_lookup"),
        "goodput",
        "Answers from documents and summaries copy from the passages, which the suffix drafter "
        "reads; the datastore adds the rest of an index (put the name of yours in place of "
        "handbook). Learned heads are weakest on such text.",
        "EAGLE-2 with a tree",
        (0.75, 0.85),
        (3.0, 5.0),
    ),
    "chat": Use(
        "suffix",
        ("suffix+draft:MODEL", "suffix>draft:MODEL", "none"),
        "goodput",
        "Free conversation repeats little, so copying alone gains little but costs nothing. A "
        "small draft model of the same family guesses more, and pays only while it is cheap "
        "enough; with > the suffix drafter also speeds up the draft model.",
        "a small draft model",
        (0.58, 0.72),
        (2.0, 2.5),
    ),
    "streaming": Use(
        "suffix",
        ("none",),
        "goodput",
        "A round may emit one token after the time of the whole round, so the slowest tokens "
        "come later than in plain decoding. What matters is the cost of a round, not its mean.",
        "Medusa",
        (0.50, 0.60),
        (1.5, 2.0),
    ),
    "batch": Use(
        "none",
        ("suffix",),
        "goodput",
        "Every drafted token is paid for as many times as there are rows, so drafts get shorter "
        "as the batch grows, and past some size none pays. The goodput policy counts all rows "
        "together and shortens drafts or stops by itself; the drafter none also saves drafting.",
        "no speculation",
        (0.50, 0.70),
        (1.0, 1.5),
    ),
}


def advice(use: str, situation: Situation, alpha: float | None = None) -> dict[str, Any]:
    """Returns what to use for one kind of work, as plain data.

    Args:
        use: A name of ``USES``.
        situation: Costs and batch.
        alpha: Acceptance that was given or measured; None takes the published range.

    Raises:
        ConfigError: The use is unknown.
    """
    known = USES[check_use(use)]
    if use == "batch" and situation.batch_size == 1:
        situation = replace(situation, batch_size=_EXAMPLE_BATCH)
    low, high = known.published_alpha if alpha is None else (alpha, alpha)
    (_, slowest), (gamma, fastest) = situation.best(low), situation.best(high)
    drafter, alternatives = known.drafter, list(known.alternatives)
    if use == "batch" and fastest >= _WORTH_IT:
        drafter, alternatives = "suffix", ["none"]
    return {
        "use": use,
        "drafter": drafter,
        "alternatives": alternatives,
        "policy": known.policy,
        "reason": known.reason,
        "here": _HERE[use](situation, high),
        "alpha": [low, high],
        "speedup": [round(slowest, 3), round(fastest, 3)],
        "num_speculative_tokens": gamma,
        "published": {
            "advice": known.published,
            "alpha": list(known.published_alpha),
            "speedup": list(known.published_speedup),
        },
        "difference": _difference(use, situation),
    }


def check_use(use: str) -> str:
    """Returns the name of a use, if it is one.

    Args:
        use: As typed; a hyphen does for an underscore.

    Raises:
        ConfigError: The use is unknown.
    """
    name = use.strip().lower().replace("-", "_")
    if name not in USES:
        raise ConfigError(f"unknown use {use!r}; {suggest(use, USES)}")
    return name


def _difference(use: str, situation: Situation) -> str | None:
    """Holds the published claim against the formula with the published acceptance."""
    known = USES[use]
    low, high = known.published_speedup
    first, last = (situation.best(alpha)[1] for alpha in known.published_alpha)
    reached = f"{first:.1f}x to {last:.1f}x"
    if use == "batch":
        rows = f"{situation.batch_size} rows"
        claim = f"Published advice for batches is none, as it stays under {high:g}x"
        return f"{claim}; the formula gives up to {last:.1f}x for {rows}." if last > high else None
    if first >= low and last <= high:
        return None
    return (
        f"Published for {known.published}: {low:g}x to {high:g}x; the formula gives {reached} here "
        "at the published acceptance."
    )


def _best_chain(situation: Situation, alpha: float) -> str:
    gamma, fastest = situation.best(alpha)
    if not gamma:
        return f"At alpha {alpha:.2f} no draft pays here."
    return f"At alpha {alpha:.2f} the best chain here has {_tokens(gamma)}: {fastest:.2f}x."


def _chat(situation: Situation, alpha: float) -> str:
    most = break_even_epsilon(
        alpha, situation.costs, situation.max_gamma, batch_size=situation.batch_size
    )
    if most is None:
        return f"At alpha {alpha:.2f} no draft pays here, not even a free one."
    return (
        f"At alpha {alpha:.2f} a draft model pays here while drafting a token costs it less than "
        f"{most:.2f} of a target pass."
    )


def _streaming(situation: Situation, alpha: float) -> str:
    def wait(gamma: int) -> float:
        return round_cost(
            gamma, situation.epsilon, situation.costs, batch_size=situation.batch_size
        )

    best, _ = situation.best(alpha)
    if not best:
        return f"At alpha {alpha:.2f} no draft pays here, and plain decoding is the steadiest."
    even = [gamma for gamma in range(1, best + 1) if wait(gamma) <= _EVEN]
    waits = f"the slowest token waits {wait(1):.2f} plain passes with a draft of 1 token"
    waits += f" and {wait(best):.2f} with the fastest draft, of {best}" if best > 1 else ""
    if even:
        return f"Here {waits}; drafts of up to {_tokens(even[-1])} keep it within {_EVEN:g}."
    return f"Here {waits}: short drafts do not make it even, only the drafter none does."


def _batch(situation: Situation, alpha: float) -> str:
    gamma, fastest = situation.best(alpha)
    at = f"With {situation.batch_size} rows and alpha {alpha:.2f}"
    if not gamma:
        return f"{at} no draft pays here."
    found = f"{at} the best draft here has {_tokens(gamma)} a row: {fastest:.2f}x"
    return f"{found}, as far as the costs of one row's tree tell those of several rows."


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


_HERE = {
    "code": _best_chain,
    "long_text": _best_chain,
    "chat": _chat,
    "streaming": _streaming,
    "batch": _batch,
}
