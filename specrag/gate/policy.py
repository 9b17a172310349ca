"""RetrievalGate: signals in, a decision out, with the figures that made it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specrag.gate.calibration import Calibration
from specrag.gate.signals import GateSignals, LookupSignals

Zone = Literal["confident", "unsure", "needed", "fixed"]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What the gate decided, and why.

    Attributes:
        retrieve: Whether the answer uses passages.
        zone: ``confident`` (no lookup), ``needed`` (lookup, passages used), ``unsure`` (lookup,
            whose scores decide), ``fixed`` (a mode or a rule decided, no signals were read).
        reason: One sentence for people, with its figures.
        p_without: Estimated probability that an answer without passages is good; None if unknown.
        p_with: The same with passages; None until a calibration estimates it.
        threshold: The value that ``p_without`` or the score was held against; None if none was.
        signals: What the gate saw, by name.
        fingerprint: Of the combination that the thresholds were fitted on; empty without one.
    """

    retrieve: bool
    zone: Zone
    reason: str
    p_without: float | None = None
    p_with: float | None = None
    threshold: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON shape of the decision."""
        return {
            "retrieve": self.retrieve,
            "reason": self.reason,
            "p_without": self.p_without,
            "p_with": self.p_with,
            "threshold": self.threshold,
            "zone": self.zone,
            "signals": dict(self.signals),
            "fingerprint": self.fingerprint,
        }


class RetrievalGate(ABC):
    """Decides from signals whether the documents are needed.

    Attributes:
        reads_signals: Whether ``decide`` looks at signals at all; without it nothing is drafted
            before a lookup.
        fingerprint: What the gate was fitted on; empty for a gate that was not fitted.
    """

    reads_signals: bool = False
    fingerprint: str = ""

    @abstractmethod
    def decide(self, signals: GateSignals | None) -> GateDecision:
        """Decides before any lookup.

        Args:
            signals: Of the closed-book draft; None when the gate does not read them.
        """

    def confirm(self, decision: GateDecision, lookup: LookupSignals) -> GateDecision:
        """Decides, after the lookup of an unsure decision, whether its passages are used.

        Args:
            decision: What ``decide`` returned.
            lookup: The scores found.
        """
        del lookup
        return decision


class FixedGate(RetrievalGate):
    """Always decides the same, because a mode or a rule says so.

    Args:
        retrieve: What it decides.
        reason: Why, one sentence.
    """

    def __init__(self, retrieve: bool, reason: str) -> None:
        self._decision = GateDecision(retrieve, "fixed", reason)

    def decide(self, signals: GateSignals | None) -> GateDecision:
        """Returns the fixed decision.

        Args:
            signals: Not looked at.
        """
        return self._decision


class CalibratedGate(RetrievalGate):
    """Three zones of a calibrated probability that the closed-book answer is good.

    Args:
        calibration: Fitted weights and thresholds.
    """

    reads_signals = True

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self.fingerprint = calibration.fingerprint

    def decide(self, signals: GateSignals | None) -> GateDecision:
        """Holds the probability against the two thresholds.

        Args:
            signals: Of the closed-book draft.

        Raises:
            ValueError: There are no signals.
        """
        if signals is None:
            raise ValueError("a calibrated gate needs signals")
        fitted = self.calibration
        probability = fitted.p_without(signals)
        values = {name: round(value, 4) for name, value in signals.to_dict().items()}
        if probability >= fitted.confident_above:
            return self._decision(False, "confident", probability, fitted.confident_above, values)
        if probability < fitted.needed_below:
            return self._decision(True, "needed", probability, fitted.needed_below, values)
        return self._decision(True, "unsure", probability, fitted.confident_above, values)

    def confirm(self, decision: GateDecision, lookup: LookupSignals) -> GateDecision:
        """Uses the passages of an unsure lookup when the best one is similar enough.

        Args:
            decision: An ``unsure`` decision; any other is returned as it is.
            lookup: The scores found.
        """
        if decision.zone != "unsure":
            return decision
        least = self.calibration.min_score
        use = lookup.top_score >= least
        reason = (
            f"The draft left it open (p(good without documents) = {decision.p_without:.2f}); the "
            f"best passage scores {lookup.top_score:.2f}, "
            f"{'at least' if use else 'less than'} {least:.2f}, so the passages are "
            f"{'used' if use else 'not used'}."
        )
        signals = {**decision.signals, **lookup.to_dict()}
        return replace(decision, retrieve=use, reason=reason, threshold=least, signals=signals)

    def _decision(
        self,
        retrieve: bool,
        zone: Zone,
        probability: float,
        threshold: float,
        signals: Mapping[str, float],
    ) -> GateDecision:
        reason = (
            f"{_REASONS[zone]} p(good without documents) = {probability:.2f} against "
            f"{threshold:.2f}, perplexity of the drafted answer {signals['perplexity']:.2f}, "
            f"of the question {signals['question_perplexity']:.0f}."
        )
        return GateDecision(
            retrieve,
            zone,
            reason,
            p_without=round(probability, 4),
            threshold=round(threshold, 4),
            signals=signals,
            fingerprint=self.fingerprint,
        )


_REASONS = {
    "confident": "The model is sure of its own answer, so nothing was looked up:",
    "needed": "The model is not sure of its own answer, so the documents were asked:",
    "unsure": "The draft left it open, so the documents were asked:",
}
