"""LogitRule: what a target does to the products of its LM head before they are its logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from specrag.errors import ModelError
from specrag.models.target import TargetModel
from specrag.models.transformers_target import TransformersTarget

_PROBED = 4  # tokens
_NEAR_ONE = 0.01  # a scale so near to 1 is the rounding of low precision
_TOLERANCE = 0.05  # of the largest logit, between what is predicted and what is there


@dataclass(frozen=True, slots=True)
class LogitRule:
    """A factor, as Cohere and Granite have it, and then a soft cap, as Gemma has it.

    Neither changes which token is likeliest; both change how likely it is.

    Attributes:
        scale: Factor of the products.
        softcap: Bound that logits approach and never reach; None leaves them alone.
    """

    scale: float = 1.0
    softcap: float | None = None

    def applied(self, products: torch.Tensor) -> torch.Tensor:
        """Returns the logits.

        Args:
            products: What the LM head computed, any shape.
        """
        if self.scale != 1.0:
            products = products * self.scale
        if self.softcap is not None:
            products = torch.tanh(products / self.softcap) * self.softcap
        return products


def lm_head_of(target: TargetModel) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns weight ``[vocab, hidden]`` and bias ``[vocab]`` of a target's LM head, not copied.

    Args:
        target: A transformers model.

    Raises:
        ModelError: It has none, or its weights are no plain numbers.
    """
    module = _module(target)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or not weight.is_floating_point() or weight.is_meta:
        raise ModelError(
            f"the LM head of {target.name!r} cannot be read by rows: "
            f"{type(module).__name__} has no plain weight",
            hint="take a draft head with an LM head of its own",
        )
    bias = getattr(module, "bias", None)
    size = target.vocab_size
    return weight.detach()[:size], None if bias is None else bias.detach()[:size]


def hidden_size_of(target: TargetModel) -> int | None:
    """Returns the width of a target's states, None where it does not say.

    Args:
        target: Any.
    """
    if not isinstance(target, TransformersTarget):
        return None
    size = getattr(target.model.config.get_text_config(), "hidden_size", None)
    return None if size is None else int(size)


@torch.inference_mode()
def measured_rule(target: TargetModel) -> LogitRule:
    """Returns what a target does to its logits, from one pass over a few tokens.

    Every model family calls its factor by another name; the pass shows it for all of them.

    Args:
        target: A transformers model.

    Raises:
        ModelError: Its logits are no scaled and capped products.
    """
    caught: list[torch.Tensor] = []
    handle = _module(target).register_forward_hook(lambda _m, _i, out: caught.append(out))
    tokens = list(range(min(_PROBED, target.vocab_size)))
    # One token at a time: what only decodes plainly takes no more.
    cache = target.new_cache(1, len(tokens))
    try:
        said = [target.prefill([[token]], cache).logits.flatten() for token in tokens]
    finally:
        handle.remove()
    cap = _softcap(target)
    if not caught:  # the LM head is computed without its module, by its weight
        return LogitRule(1.0, cap)
    logits = torch.cat(said).double()
    products = torch.cat([out.flatten()[-target.vocab_size :] for out in caught]).double()
    rule = LogitRule(_scale(products, logits, cap), cap)
    error = float((rule.applied(products) - logits).abs().max())
    if not error <= _TOLERANCE * float(logits.abs().max()):
        raise ModelError(
            f"the logits of {target.name!r} differ from what its LM head computes by up to "
            f"{error:.3g}, and neither a factor nor a soft cap explains it",
            hint="take a draft head with an LM head of its own",
        )
    return rule


def _module(target: TargetModel) -> Any:
    found = None
    if isinstance(target, TransformersTarget):
        found = target.model.get_output_embeddings()
    if found is None:
        raise ModelError(
            f"the LM head of {target.name!r} cannot be found",
            hint="take a draft head with an LM head of its own",
        )
    return found


def _softcap(target: TargetModel) -> float | None:
    if not isinstance(target, TransformersTarget):
        return None
    cap = getattr(target.model.config.get_text_config(), "final_logit_softcapping", None)
    return float(cap) if cap else None


def _scale(products: torch.Tensor, logits: torch.Tensor, cap: float | None) -> float:
    if cap is not None:
        inside = logits.abs() < 0.9 * cap  # beyond, rounding hides where it came from
        products, logits = products[inside], cap * torch.atanh(logits[inside] / cap)
    power = float(products @ products)
    scale = float(products @ logits) / power if power else 1.0
    return 1.0 if abs(scale - 1.0) < _NEAR_ONE else scale
