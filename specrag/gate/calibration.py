"""Fitting the gate's thresholds on labelled questions, and keeping them with what they hold for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from specrag.errors import GateError, suggest
from specrag.gate.signals import GateSignals

FORMAT_VERSION = 1
FEATURES: tuple[str, ...] = (
    "cross_model_perplexity",
    "margin",
    "entropy",
    "low_probability",
    "first_probability",
    "question_perplexity",
    "term_coverage",
)
"""Signals that the probability is fitted on; perplexities enter by their logarithm."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted logistic model of "the closed-book answer is good", and two thresholds on it.

    Attributes:
        fitted_on: Name to fingerprint of each part: target, drafter, speculation, prompt,
            draft_tokens, index.
        features: Names of the signals.
        mean: Of each feature.
        scale: Standard deviation of each feature.
        weights: Of each standardised feature.
        intercept: Of the model.
        confident_above: From this probability on, nothing is looked up.
        needed_below: Below it, the passages found are always used.
        min_score: Similarity from which the passages of an unsure lookup are used.
        num_labels: Labelled questions that it was fitted on.
        report: Figures of the fit, out of fold; see ``fit``.
    """

    fitted_on: Mapping[str, str]
    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    confident_above: float
    needed_below: float
    min_score: float
    num_labels: int
    report: Mapping[str, float] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Short digest of what the thresholds hold for."""
        return fingerprint_of(self.fitted_on)

    def p_without(self, signals: GateSignals) -> float:
        """Estimates the probability that the answer without documents is good.

        Args:
            signals: Of the closed-book draft.
        """
        row = (vector(signals, self.features) - np.array(self.mean)) / np.array(self.scale)
        return _sigmoid(float(row @ np.array(self.weights)) + self.intercept)

    @property
    def beats_chance(self) -> bool:
        """Whether the fit was shown to tell the two kinds of questions apart."""
        return self.report.get("auroc_low", 1.0) > 0.5

    def save(self, path: Path) -> None:
        """Writes the calibration as JSON.

        Args:
            path: Replaced atomically if it exists.
        """
        content = {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Reads a calibration.

        Args:
            path: A file written by ``save``.

        Raises:
            GateError: It is missing, damaged, or of another format version.
        """
        hint = "fit it again with `specrag gate calibrate`"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise GateError(f"cannot read the calibration {str(path)!r}: {error}", hint=hint) from (
                error
            )
        version = content.pop("format_version", None) if isinstance(content, dict) else None
        if version != FORMAT_VERSION:
            raise GateError(
                f"the calibration {str(path)!r} has format version {version!r}; this version "
                f"reads {FORMAT_VERSION}",
                hint=hint,
            )
        return cls._checked(content, path, hint)

    @classmethod
    def _checked(cls, content: dict[str, Any], path: Path, hint: str) -> Calibration:
        names = {item.name for item in fields(cls)}
        for key in (*content, *names):
            if key not in names or key not in content:
                raise GateError(
                    f"the calibration {str(path)!r} has a missing or unknown key {key!r}; "
                    f"{suggest(key, names)}",
                    hint=hint,
                )
        for damage in _damages(content):
            raise GateError(f"the calibration {str(path)!r} is damaged: {damage}", hint=hint)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in content.items()
        }
        return cls(**values)


@dataclass(frozen=True, slots=True)
class LabelledSignals:
    """One labelled question.

    Attributes:
        signals: Of its closed-book draft.
        retrieve: Whether the documents are needed.
        top_score: Similarity of the best passage.
    """

    signals: GateSignals
    retrieve: bool
    top_score: float


def fingerprint_of(parts: Mapping[str, str]) -> str:
    """Returns a short digest of named parts.

    Args:
        parts: Name to fingerprint.
    """
    text = json.dumps(dict(parts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def vector(signals: GateSignals, features: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the named signals as a row, perplexities by their logarithm.

    Args:
        signals: All signals of a question.
        features: Names, in order.

    Returns:
        ``[features]``.
    """
    values = signals.to_dict()
    return np.array(
        [math.log(values[f]) if f.endswith("perplexity") else values[f] for f in features]
    )


def fit(
    rows: Sequence[LabelledSignals],
    fitted_on: Mapping[str, str],
    *,
    max_missed: float = 0.05,
    max_wasted: float = 0.05,
    seed: int = 0,
) -> Calibration:
    """Fits the gate on labelled questions.

    The thresholds are chosen on out-of-fold probabilities, so the report is not flattered by
    questions that the model has seen.

    Args:
        rows: Labelled questions of both kinds, at least ten each.
        fitted_on: Name to fingerprint of what the thresholds hold for: target, drafter, prompt ...
        max_missed: Largest share of questions that need documents to land in ``confident``.
        max_wasted: Largest share of questions that need none to land in ``needed``.
        seed: Of the folds.

    Raises:
        GateError: There are too few questions of a kind, or a share is not from 0 to 1.
    """
    for name, share in (("max_missed", max_missed), ("max_wasted", max_wasted)):
        if not 0 <= share <= 1:
            raise GateError(f"{name} must be from 0 to 1, got {share}")
    good = np.array([not row.retrieve for row in rows], dtype=bool)
    if min(good.sum(), (~good).sum()) < 10:
        raise GateError(
            f"a calibration needs at least 10 questions of each kind, got {int((~good).sum())} "
            f"that need documents and {int(good.sum())} that need none",
            hint="label more questions",
        )
    table = np.stack([vector(row.signals, FEATURES) for row in rows])
    mean, scale = table.mean(axis=0), np.maximum(table.std(axis=0), 1e-6)
    standard = (table - mean) / scale
    weights, intercept = _logistic(standard, good)
    held_out = _out_of_fold(standard, good, seed)
    confident = _lowest_above(held_out, ~good, max_missed)
    needed = min(_highest_below(held_out, good, max_wasted), confident)
    min_score = _best_score([row.top_score for row in rows], good)
    return Calibration(
        fitted_on=dict(fitted_on),
        features=FEATURES,
        mean=tuple(mean.tolist()),
        scale=tuple(scale.tolist()),
        weights=tuple(weights.tolist()),
        intercept=intercept,
        confident_above=confident,
        needed_below=needed,
        min_score=min_score,
        num_labels=len(rows),
        report=_report(held_out, good, confident, needed),
    )


def _damages(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is wrong with the values of a calibration file."""
    features = content["features"]
    if not isinstance(features, list) or not features:
        yield f"features must be a list of signals, got {features!r}"
        return
    known = [item.name for item in fields(GateSignals)]
    yield from (
        f"unknown signal {name!r}; {suggest(str(name), known)}"
        for name in features
        if name not in known
    )
    for key in ("mean", "scale", "weights"):
        if not _are_numbers(content[key], len(features)):
            yield f"{key} must be {len(features)} finite numbers, got {content[key]!r}"
        elif key == "scale" and min(content[key]) <= 0:
            yield f"scale must be above 0, got {content[key]!r}"
    numbers = ("intercept", "confident_above", "needed_below", "min_score", "num_labels")
    bad = [key for key in numbers if not _are_numbers([content[key]], 1)]
    yield from (f"{key} must be a finite number, got {content[key]!r}" for key in bad)
    if not bad and content["needed_below"] > content["confident_above"]:
        yield f"needed_below {content['needed_below']} is above {content['confident_above']}"
    yield from _damaged_tables(content)


def _damaged_tables(content: Mapping[str, Any]) -> Iterator[str]:
    fitted_on, report = content["fitted_on"], content["report"]
    if not isinstance(fitted_on, dict) or not all(isinstance(v, str) for v in fitted_on.values()):
        yield f"fitted_on must map names to fingerprints, got {fitted_on!r}"
    if not isinstance(report, dict) or not _are_numbers([*report.values()], len(report)):
        yield f"report must map names to finite numbers, got {report!r}"


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    )


def _logistic(
    table: np.ndarray[Any, Any], good: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], float]:
    from sklearn.linear_model import LogisticRegression  # slow to import, needed to fit only

    model = LogisticRegression(C=1.0).fit(table, good)
    return model.coef_[0], float(model.intercept_[0])


def _out_of_fold(
    table: np.ndarray[Any, Any], good: np.ndarray[Any, Any], seed: int
) -> np.ndarray[Any, Any]:
    from sklearn.model_selection import StratifiedKFold

    probabilities = np.zeros(len(good))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(table, good):
        weights, intercept = _logistic(table[train], good[train])
        scores = table[test] @ weights + intercept
        probabilities[test] = [_sigmoid(score) for score in scores]
    return probabilities


def _lowest_above(
    probabilities: np.ndarray[Any, Any], mask: np.ndarray[Any, Any], share: float
) -> float:
    """The lowest threshold that at most a share of the masked probabilities reach."""
    ranked = np.sort(probabilities[mask])[::-1]
    # Upwards without end: a probability can be 1.0 itself, and must stay below the threshold.
    return float(np.nextafter(ranked[_place(share, ranked)], math.inf))


def _highest_below(
    probabilities: np.ndarray[Any, Any], mask: np.ndarray[Any, Any], share: float
) -> float:
    """The highest threshold that at most a share of the masked probabilities stay below."""
    ranked = np.sort(probabilities[mask])
    return float(ranked[_place(share, ranked)])


def _place(share: float, ranked: np.ndarray[Any, Any]) -> int:
    return min(int(share * len(ranked)), len(ranked) - 1)


def _best_score(scores: Sequence[float], good: np.ndarray[Any, Any]) -> float:
    """The similarity that separates the two kinds of questions with the fewest errors."""
    values = np.array(scores)
    candidates = np.sort(values)
    errors = [int((values[good] >= c).sum() + (values[~good] < c).sum()) for c in candidates]
    best = int(np.argmin(errors))
    below = candidates[best - 1] if best else candidates[best]
    return float((candidates[best] + below) / 2)


def _report(
    probabilities: np.ndarray[Any, Any], good: np.ndarray[Any, Any], confident: float, needed: float
) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    needs = probabilities[~good]
    needs_none = probabilities[good]
    return {
        "auroc": round(float(roc_auc_score(good, probabilities)), 4),
        "auroc_low": round(_auroc_low(good, probabilities), 4),
        "needs_documents_confident": round(float((needs >= confident).mean()), 4),
        "needs_documents_needed": round(float((needs < needed).mean()), 4),
        "needs_none_confident": round(float((needs_none >= confident).mean()), 4),
        "needs_none_needed": round(float((needs_none < needed).mean()), 4),
    }


def _auroc_low(good: np.ndarray[Any, Any], probabilities: np.ndarray[Any, Any]) -> float:
    """The lower end of a 95 % interval of the AUROC, by 1000 stratified bootstrap samples."""
    random = np.random.default_rng(0)
    # The AUROC is the share of pairs in the right order; a sample only draws from these pairs.
    above, below = probabilities[good][:, None], probabilities[~good]
    pairs = (above > below) + 0.5 * (above == below)
    values = [
        pairs[np.ix_(*(random.integers(size, size=size) for size in pairs.shape))].mean()
        for _ in range(1000)
    ]
    return float(np.quantile(values, 0.025))


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, value))))
