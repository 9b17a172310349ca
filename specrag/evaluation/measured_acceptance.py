"""Acceptance as it was measured: read from what `bench`, `generate` or `ask` print as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrag.decoding.budget import PassCosts
from specrag.errors import InputError
from specrag.evaluation.speed.figures import ALL

_LEAST = 10  # drafts that must have come to a depth for its acceptance to be a figure
_HINT = "give a report of `specrag bench`, or the output of `specrag generate --json`"


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """What one drafter's counters say.

    Drafts that ended before a depth count there as not accepted, so a drafter that sends drafts
    of changing length is judged too low, never too high.

    Attributes:
        label: Drafter and kind of text.
        by_depth: Share of drafts accepted at each depth of those accepted until there; where
            fewer than ten drafts came deeper, ``alpha`` stands at the end for the depths beyond.
        alpha: One figure for all depths: accepted tokens per token that was put to the test.
        basis: What the first depth was divided by: ``num_drafts``, or where that is not told
            ``num_passes``, which makes it lower; ``mean_acceptance_length`` when only that is
            known: the acceptance that endless drafts would need for it.
        num_rounds: The number that the basis stands for; None when unknown.
        num_passes: Passes in all, those without a draft included; None when unknown.
        mean_acceptance_length: Tokens per pass, passes without a draft included.
        speedup: Measured against plain decoding; None when it was not.
        draft_ms_per_token: Time to draft one token that was sent.
        pass_ms: Time of an average pass of the target.
        nodes_per_pass: Its average size.
    """

    label: str
    by_depth: tuple[float, ...]
    alpha: float
    basis: str
    num_rounds: int | None = None
    num_passes: int | None = None
    mean_acceptance_length: float | None = None
    speedup: float | None = None
    draft_ms_per_token: float | None = None
    pass_ms: float | None = None
    nodes_per_pass: float | None = None

    @property
    def coverage(self) -> float:
        """Share of passes that had a draft, so far as that is known; else 1.0."""
        if self.basis != "num_drafts" or not self.num_passes or self.num_rounds is None:
            return 1.0
        return min(1.0, self.num_rounds / self.num_passes)

    def epsilon(self, costs: PassCosts | None) -> float | None:
        """Returns the time to draft one token as a share of a plain pass, if times were measured.

        Args:
            costs: Tell what a plain pass takes when larger ones were timed.
        """
        if self.draft_ms_per_token is None or not self.pass_ms or self.nodes_per_pass is None:
            return None
        relative = costs.of(round(self.nodes_per_pass)) if costs else 1.0
        return self.draft_ms_per_token / (self.pass_ms / relative)


def load_acceptance(path: Path) -> list[MeasuredAcceptance]:
    """Reads all drafters that a file tells about; plain decoding is left out.

    Args:
        path: A JSON file.

    Raises:
        InputError: It cannot be read, or tells nothing about acceptance.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {str(path)!r} as JSON: {error}", hint=_HINT) from error
    found = _entries(content)
    if not all(isinstance(entry, dict) for entry in found):
        raise InputError(f"{str(path)!r} holds no statistics of decoding", hint=_HINT)
    measured = [read for entry in _drafting(found) if (read := _read(entry, path)) is not None]
    if not measured:
        raise InputError(
            f"nothing was drafted in {str(path)!r}, so it tells nothing about acceptance",
            hint="measure with a drafter, such as --drafters suffix",
        )
    return measured


def _entries(content: Any) -> list[Any]:
    """Returns the rows of a report of ``bench``, or else the content itself."""
    figures = content.get("figures", content) if isinstance(content, dict) else None
    rows = figures.get("results") if isinstance(figures, dict) else None
    return rows if isinstance(rows, list) else [content]


def _drafting(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leaves out plain decoding, other engines, and sums over a single category; sums lead."""
    categories = {entry.get("category") for entry in entries} - {ALL}
    drafting = [
        entry
        for entry in entries
        if entry.get("drafter") != "none"
        and entry.get("speculation", entry) is not None
        and (len(categories) != 1 or entry.get("category") != ALL)
    ]
    return sorted(drafting, key=lambda entry: entry.get("category") != ALL)


def _read(entry: Mapping[str, Any], path: Path) -> MeasuredAcceptance | None:
    """Reads one entry; None where nothing was drafted."""
    speculation = entry.get("speculation", entry)
    if not isinstance(speculation, dict):
        raise InputError(f"'speculation' in {str(path)!r} is no object", hint=_HINT)
    figures = {**entry, **speculation}
    label = ", ".join(str(figures[name]) for name in ("drafter", "category") if figures.get(name))
    try:
        return _measured(label or path.name, figures, path)
    except (TypeError, ValueError) as error:
        raise InputError(f"a figure in {str(path)!r} cannot be used: {error}") from error


def _measured(label: str, figures: Mapping[str, Any], path: Path) -> MeasuredAcceptance | None:
    length, speedup = _number(figures, "mean_acceptance_length"), _number(figures, "speedup")
    if "num_accepted_tokens_per_pos" not in figures:
        if length is None:
            raise InputError(
                f"{str(path)!r} has neither num_accepted_tokens_per_pos nor "
                f"mean_acceptance_length; it has {', '.join(sorted(figures)) or 'nothing'}",
                hint=_HINT,
            )
        alpha = 1 - 1 / max(1.0, length)
        return MeasuredAcceptance(
            label, (alpha,), alpha, "mean_acceptance_length", None, None, length, speedup
        )
    accepted = [int(count) for count in figures["num_accepted_tokens_per_pos"]]
    basis, rounds = _rounds(figures, sum(accepted), path)
    if not accepted or not rounds:
        return None
    if any(later > earlier for earlier, later in zip([rounds, *accepted], accepted, strict=False)):
        raise InputError(
            f"num_accepted_tokens_per_pos in {str(path)!r} must never rise and start at most at "
            f"{basis} = {rounds}, got {accepted}",
            hint="the counts and their number of drafts must be of the same run",
        )
    tested = [rounds, *accepted[:-1]]
    # Few drafts come to the deepest places; what they say there is chance.
    enough = 1 + sum(count >= _LEAST for count in tested[1:])
    by_depth = [a / t for a, t in zip(accepted[:enough], tested, strict=False)]
    alpha = sum(accepted) / sum(tested)
    if enough < len(accepted):
        by_depth.append(alpha)
    return MeasuredAcceptance(
        label,
        tuple(by_depth),
        alpha,
        basis,
        rounds,
        _passes(figures, sum(accepted)),
        length,
        speedup,
        *_times(figures),
    )


def _rounds(figures: Mapping[str, Any], num_accepted: int, path: Path) -> tuple[str, int]:
    """Returns how many drafts there were, or else passes, from whatever tells it."""
    if figures.get("num_drafts") is not None:
        return "num_drafts", int(figures["num_drafts"])
    passes = _passes(figures, num_accepted)
    if passes is None:
        raise InputError(
            f"{str(path)!r} does not tell how many drafts there were: it has none of num_drafts, "
            "num_passes, num_tokens with num_prompts, mean_acceptance_length",
            hint=_HINT,
        )
    return "num_passes", passes


def _passes(figures: Mapping[str, Any], num_accepted: int) -> int | None:
    if figures.get("num_passes") is not None:
        return int(figures["num_passes"])
    tokens, prompts = _number(figures, "num_tokens"), _number(figures, "num_prompts")
    if tokens is not None and prompts is not None:
        # The prompt's pass gives the first token of each answer, every other pass one of its own.
        return int(tokens - prompts) - num_accepted
    length = _number(figures, "mean_acceptance_length")
    if length is None:
        return None
    return round(num_accepted / (length - 1)) if length > 1 else 0


def _times(figures: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    times = figures.get("timings")
    counts = [figures.get(name) for name in ("num_draft_tokens", "num_passes")]
    if not isinstance(times, dict) or not all(counts):
        return None, None, None
    drafting, verifying = _number(times, "draft_ms"), _number(times, "verify_ms")
    if drafting is None or not verifying:
        return None, None, None
    drafted, passes = (float(count) for count in counts if count)
    return drafting / drafted, verifying / passes, 1 + drafted / passes


def _number(figures: Mapping[str, Any], name: str) -> float | None:
    value = figures.get(name)
    return None if value is None else float(value)
