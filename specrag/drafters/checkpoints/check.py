"""Whether a draft head and a target fit together, said with the numbers of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint, empty_head
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.heads.config import Eagle3Config
from specrag.drafters.heads.medusa import MedusaConfig
from specrag.errors import ModelError
from specrag.models.target import FINAL_NORM
from specrag.models.tokenizer import first_line

_SHOWN = 4


def check_checkpoint(checkpoint: HeadCheckpoint, target: TargetShape) -> None:
    """Refuses a head that does not fit its target, or whose tensors are not those of its kind.

    Args:
        checkpoint: The head.
        target: What it is to draft for.

    Raises:
        ModelError: Everything that does not fit, in one message.
    """
    if problems := [*_sizes(checkpoint, target), *_layers(checkpoint, target)]:
        raise ModelError(
            f"the draft head {checkpoint.name!r} does not fit the target {target.name!r}: "
            + "; ".join(problems),
            hint="use the head of this target, or train one: specrag train eagle",
        )
    if problems := [*_names_and_shapes(checkpoint), *_values(checkpoint)]:
        raise ModelError(
            f"the draft head {checkpoint.name!r} is damaged, or of a kind that specrag does not "
            "know: " + "; ".join(problems),
            hint="fetch the head again",
        )


def _sizes(checkpoint: HeadCheckpoint, target: TargetShape) -> Iterator[str]:
    config = checkpoint.config
    if isinstance(config, Eagle3Config):
        given, embedded = config.target_hidden_size, config.layer.hidden_size
        if not config.own_embedding and embedded != target.hidden_size:
            yield (
                f"it is {embedded} wide and has no embeddings of its own, the target's are "
                f"{target.hidden_size} wide"
            )
        if not config.own_lm_head and embedded != target.hidden_size:
            yield f"it has no LM head of its own, and the target's reads {target.hidden_size}"
    elif isinstance(config, MedusaConfig):
        given = config.hidden_size
    else:
        given = config.layer.hidden_size
    if given != target.hidden_size:
        yield f"it reads states {given} wide, the target's are {target.hidden_size} wide"
    if config.vocab_size != target.vocab_size:
        yield (
            f"it is made for a vocabulary of {config.vocab_size} tokens, the target has "
            f"{target.vocab_size}"
        )


def _layers(checkpoint: HeadCheckpoint, target: TargetShape) -> Iterator[str]:
    if isinstance(checkpoint.config, Eagle3Config):
        layers = checkpoint.config.feature_layers
        if any(at != FINAL_NORM and not 0 <= at < target.num_layers for at in layers):
            yield f"it reads layers {layers}, the target has 0 to {target.num_layers - 1}"


def _names_and_shapes(checkpoint: HeadCheckpoint) -> Iterator[str]:
    wanted = _wanted(checkpoint)
    found = checkpoint.tensors
    yield from _few("it lacks", sorted(wanted.keys() - found.keys()))
    yield from _few("it has no use for", sorted(found.keys() - wanted.keys()))
    wrong = [
        f"{key} {tuple(found[key].shape)} in place of {tuple(wanted[key].shape)}"
        for key in wanted
        if key in found and found[key].shape != wanted[key].shape
    ]
    yield from _few("it has", wrong)


def _wanted(checkpoint: HeadCheckpoint) -> Mapping[str, torch.Tensor]:
    try:
        tensors: Mapping[str, torch.Tensor] = empty_head(checkpoint.config).state_dict()
    except Exception as error:  # the makers of rotations raise what they like
        raise ModelError(
            f"the positions of the draft head {checkpoint.name!r} cannot be computed: "
            f"{type(error).__name__}: {first_line(error)}",
            hint="look at rope_scaling or rope_parameters in its config.json",
        ) from error
    return tensors


def _values(checkpoint: HeadCheckpoint) -> Iterator[str]:
    plain = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    other = [
        f"{key} as {value.dtype}"
        for key, value in checkpoint.tensors.items()
        if value.dtype not in plain
    ]
    yield from _few("it has quantized or whole numbers:", other)
    broken = [
        key
        for key, value in checkpoint.tensors.items()
        if value.dtype in plain and not torch.isfinite(value).all()
    ]
    yield from _few("it has infinities or NaN in", broken)


def _few(what: str, items: list[str]) -> Iterator[str]:
    if items:
        more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
        yield f"{what} {', '.join(items[:_SHOWN])}{more}"
