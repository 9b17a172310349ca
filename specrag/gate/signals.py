"""Named figures that say how sure the target is of a closed-book answer, and of a lookup.

All come from passes that decoding makes anyway; nothing is sampled or generated for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from specrag.decoding.trace import TokenRecord, VerificationTrace
from specrag.retrieval.document import ScoredPassage

_FLOOR = -20.0  # nats; keeps one impossible draft from drowning all other tokens


@dataclass(frozen=True, slots=True)
class GateSignals:
    """What one verification pass over the beginning of a closed-book answer shows.

    Where nothing was drafted for a position, the target's own token counts as the draft, so with
    a drafter that has no weights the cross-model figures approach the target's own.

    Attributes:
        cross_model_perplexity: Perplexity of the drafted tokens under the target.
        perplexity: Perplexity of the emitted tokens under the target.
        margin: Mean probability of the best token minus that of the second.
        overlap: Mean overlap of drafter and target, the sum over the vocabulary of the smaller
            probability; for a drafted token without draft probabilities, the target's probability.
        entropy: Mean entropy of the target's distribution, in nats.
        acceptance: Share of drafted positions where the target agreed, 1.0 when none was drafted.
        low_probability: 10th percentile of the emitted tokens' probabilities.
        first_probability: Probability of the first emitted token.
        question_perplexity: Perplexity of the question's own tokens under the target.
        num_tokens: Emitted tokens that the figures are taken over.
        term_coverage: How much of the question's rare words the documents know, from 0 to 1; what
            they do not speak of they cannot answer. Read from term counts, not by a lookup.
    """

    cross_model_perplexity: float
    perplexity: float
    margin: float
    overlap: float
    entropy: float
    acceptance: float
    low_probability: float
    first_probability: float
    question_perplexity: float
    num_tokens: int
    term_coverage: float = 1.0

    def to_dict(self) -> dict[str, float]:
        """Returns the signals by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LookupSignals:
    """What the scores of a lookup show.

    Attributes:
        top_score: Similarity of the best passage, from -1 to 1.
        gap: Its distance to the mean of the other passages found; 0 with one passage.
    """

    top_score: float
    gap: float

    @classmethod
    def of(cls, passages: Sequence[ScoredPassage]) -> LookupSignals:
        """Measures a lookup.

        Args:
            passages: The passages found, best first; none gives a score of -1.
        """
        if not passages:
            return cls(-1.0, 0.0)
        scores = [found.score for found in passages]
        rest = scores[1:] or scores
        return cls(scores[0], scores[0] - sum(rest) / len(rest))

    def to_dict(self) -> dict[str, float]:
        """Returns the signals by name."""
        return asdict(self)


def measure(
    trace: VerificationTrace,
    *,
    num_question: int,
    num_tokens: int | None = None,
    term_coverage: float = 1.0,
) -> GateSignals:
    """Reads the signals off the passes made so far.

    Args:
        trace: What the passes saw.
        num_question: Tokens of the question, the first ones of the traced prompt.
        num_tokens: Emitted tokens to look at, the first ones. The last round may have brought
            more, and how many depends on the machine; None looks at all.
        term_coverage: Of the question by the documents.

    Raises:
        ValueError: Nothing has been emitted yet.
    """
    records = trace.tokens[:num_tokens]
    if not records:
        raise ValueError("the gate needs at least one verified token")
    drafted = [_draft_logprob(record) for record in records]
    emitted = [record.logprob for record in records]
    return GateSignals(
        cross_model_perplexity=_perplexity(drafted),
        perplexity=_perplexity(emitted),
        margin=_mean([record.margin for record in records]),
        overlap=_mean([math.exp(value) for value in drafted]),
        entropy=_mean([record.entropy for record in records]),
        acceptance=_acceptance(records),
        low_probability=math.exp(_percentile(emitted, 0.1)),
        first_probability=math.exp(emitted[0]),
        question_perplexity=_perplexity(trace.prompt_logprobs[:num_question]),
        num_tokens=len(records),
        term_coverage=term_coverage,
    )


def _draft_logprob(record: TokenRecord) -> float:
    value = record.logprob if record.draft_logprob is None else record.draft_logprob
    return max(value, _FLOOR)


def _acceptance(records: Sequence[TokenRecord]) -> float:
    agreed = [record.agreed for record in records if record.agreed is not None]
    return _mean(agreed) if agreed else 1.0


def _perplexity(logprobs: Sequence[float]) -> float:
    return math.exp(-_mean(logprobs)) if logprobs else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percentile(values: Sequence[float], share: float) -> float:
    """The value at a share of the sorted ones, the lower neighbour: no interpolation to explain."""
    return sorted(values)[int(share * (len(values) - 1))]
