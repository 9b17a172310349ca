"""The self-probe: a head has to agree with the target, under one convention of its format."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from specrag.drafters.checkpoints.agreement import (
    Agreement,
    Trial,
    agreement_of,
    commonest_share,
    features_of,
    generated_trials,
)
from specrag.drafters.checkpoints.checkpoint import DraftHead, HeadCheckpoint, differences
from specrag.errors import ModelError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer
from specrag.models.transformers_target import TransformersTarget

FLOOR = 0.10
"""Share of tokens that a head must name rightly; trained ones reach 0.3 to 0.8."""

MARGIN = 0.03
"""By how much another reading must agree more, over both levels, to replace the declared one."""

_FEWEST = 24
_LOG = logging.getLogger(__name__)
_TRIALS: WeakKeyDictionary[TargetModel, tuple[Trial, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Probed:
    """A head that agrees with its target.

    Attributes:
        checkpoint: The head, its ``config`` being the reading that agrees best.
        head: The network of that reading, in the target's precision and on its device.
        agreement: Of that reading; None where the target said too little to tell.
        declared: Of the reading that the file declares.
    """

    checkpoint: HeadCheckpoint
    head: DraftHead
    agreement: Agreement | None
    declared: Agreement | None


def probe(
    target: TransformersTarget,
    tokenizer: Tokenizer,
    checkpoint: HeadCheckpoint,
    trials: Sequence[Trial] | None = None,
) -> Probed:
    """Finds the reading of a head's file that agrees with the target, or refuses the head.

    A head that is read wrongly still decodes, and what comes out is right, only slowly: nothing
    else would tell. The target answers a few prompts once, and each reading of the file is asked
    for the tokens of these answers, one and two levels deep.

    Args:
        target: What the head is to draft for.
        tokenizer: Its tokenizer.
        checkpoint: The head.
        trials: Texts of the target; by default it is asked for some, once for each target.

    Raises:
        ModelError: No reading agrees: the head was made for another target, or is damaged.
    """
    trials = _trials(target, tokenizer) if trials is None else trials
    heads = [
        checkpoint.build(config, target.dtype, target.device) for config in checkpoint.variants
    ]
    layers = sorted({layer for head in heads for layer in head.feature_layers})
    features = [features_of(target, trial, layers) for trial in trials]
    found = [
        agreement_of(head, target, trials, features, checkpoint.draft_token_ids) for head in heads
    ]
    if found[0].total < _FEWEST:
        note = f"not tried: the target {target.name!r} said only {found[0].total} tokens"
        _LOG.warning("draft head %s: %s", checkpoint.name, note)
        return Probed(checkpoint.with_config(checkpoint.config, note), heads[0], None, None)
    # Of equal ones the first: it is declared, or nearer to what is.
    best = max(range(len(found)), key=lambda index: (found[index].score, -index))
    if found[best].score <= found[0].score + MARGIN:
        best = 0
    _refuse_low(target, checkpoint, trials, found, found[best])
    chosen, note = checkpoint.variants[best], f"agrees with {found[best]} of the target's tokens"
    if best:
        changes = differences(chosen, checkpoint.config)
        note = f"read with {changes}: {note}, as declared with {found[0]}"
        _LOG.warning("draft head %s: %s", checkpoint.name, note)
    else:
        _LOG.info("draft head %s: %s", checkpoint.name, note)
    return Probed(checkpoint.with_config(chosen, note), heads[best], found[best], found[0])


def _trials(target: TransformersTarget, tokenizer: Tokenizer) -> tuple[Trial, ...]:
    if target not in _TRIALS:
        _TRIALS[target] = generated_trials(target, tokenizer)
    return _TRIALS[target]


def _refuse_low(
    target: TransformersTarget,
    checkpoint: HeadCheckpoint,
    trials: Sequence[Trial],
    found: Sequence[Agreement],
    best: Agreement,
) -> None:
    blind = commonest_share(trials)
    floor = max(FLOOR, blind)
    if best.shares[0] >= floor:
        return
    figures: Mapping[str, Agreement] = {
        differences(config, checkpoint.config) or "as declared": agreement
        for config, agreement in zip(checkpoint.variants, found, strict=True)
    }
    shown = "; ".join(f"{name}: {agreement}" for name, agreement in figures.items())
    raise ModelError(
        f"the draft head {checkpoint.name!r} does not agree with the target {target.name!r}: of "
        f"{best.total} tokens that it generated, one and two levels deep, the head named the share "
        f"of {shown}. At least {floor:.3f} is needed at the first level; naming the most common "
        f"token always gives {blind:.3f}",
        hint="use the head that was trained for exactly this model, or train one: specrag train "
        "eagle",
    )
