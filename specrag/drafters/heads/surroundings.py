"""What a head takes from its target: token embeddings, the LM head, precision and device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from specrag.drafters.heads.config import Eagle3Config
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.logit_rule import hidden_size_of
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError, ModelError
from specrag.models.quantization import pack_linears
from specrag.models.target import TargetModel

Head = TypeVar("Head", bound=nn.Module)
Embed = Callable[[torch.Tensor], torch.Tensor]
"""Token ids to embeddings."""


def check_sizes(head: FeatureHead, target: TargetModel) -> None:
    """Refuses a head whose sizes are not those of a target.

    Args:
        head: The head.
        target: Whose states and tokens it shall read.

    Raises:
        ConfigError: It was made for another model; the message has the sizes of both.
    """
    config, width = head.config, hidden_size_of(target)
    if config.vocab_size != target.vocab_size:
        raise ConfigError(
            f"the head was made for {config.vocab_size} tokens, but {target.name} has "
            f"{target.vocab_size}",
            hint="take a head that was trained for this model",
        )
    reads = config.layer.hidden_size
    if isinstance(config, Eagle3Config):
        reads = config.target_hidden_size
    if width not in (None, reads):
        raise ConfigError(
            f"the head reads states of width {reads}, but those of {target.name} have {width}",
            hint="take a head that was trained for this model",
        )


def embedding_of(head: FeatureHead, target: TargetModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the token embeddings that a head reads: its own, or the target's.

    Args:
        head: The head.
        target: Whose tokens they are.

    Raises:
        ConfigError: The target's are of another width.
        ModelError: The target has none that can be read.
    """
    own = getattr(head, "embed_tokens", None)
    if isinstance(own, nn.Module):
        return own
    found: nn.Module = input_embedding(target)
    width, needed = int(found.get_parameter("weight").shape[1]), head.layer_config.hidden_size
    if width != needed:
        raise ConfigError(
            f"the head is {needed} wide and has no token embeddings of its own; those of "
            f"{target.name} are {width} wide",
            hint="take a head that was trained for this model",
        )
    return found


def projection_of(
    head: FeatureHead, target: TargetModel, token_ids: torch.Tensor | None
) -> Projection:
    """Returns what names the tokens of a head: its own LM head, or rows of the target's.

    Args:
        head: The head.
        target: Whose tokens they are.
        token_ids: The tokens it can say; None for all.

    Raises:
        ConfigError: The tokens are not the target's.
        ModelError: The target has no LM head that can be read.
    """
    own = getattr(head, "lm_head", None)
    if isinstance(own, nn.Linear):
        found = Projection.own(own.weight, token_ids, target.vocab_size)
    else:
        found = Projection.shared(target, token_ids)
    return found.packed(target.quantization)


def fitted(head: Head, target: TargetModel) -> Head:
    """Returns a head as its target is: its precision, its device, packed if it is packed.

    Args:
        head: Any; what is returned is a copy wherever it differs.
        target: Its target.
    """
    parameter, packs = next(head.parameters()), target.quantization != "none"
    if (parameter.device, parameter.dtype) == (target.device, target.dtype) and not packs:
        return head
    made = copy.deepcopy(head).to(target.device, target.dtype)
    if packs:
        pack_linears(made, target.quantization)
    return made


def input_embedding(target: TargetModel) -> Any:
    """Returns the module that embeds the target's tokens.

    Args:
        target: Made of a transformers model.

    Raises:
        ModelError: It has none that can be read.
    """
    model = getattr(target, "model", None)
    found = model.get_input_embeddings() if model is not None else None
    if not isinstance(getattr(found, "weight", None), torch.Tensor):
        raise ModelError(f"the token embeddings of {target.name} cannot be read")
    return found
