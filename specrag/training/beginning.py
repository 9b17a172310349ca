"""New heads for a target: their shape, their vocabulary, and weights to begin from."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from specrag.drafters.checkpoints.checkpoint import DraftHead
from specrag.drafters.checkpoints.reader import read_checkpoint
from specrag.drafters.heads.config import (
    DraftLayerConfig,
    Eagle3Config,
    EagleConfig,
    default_feature_layers,
)
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.errors import ConfigError
from specrag.models.transformers_target import TransformersTarget
from specrag.training.texts import TrainingText

Head = TypeVar("Head", bound=FeatureHead)

_SMALL = 0.02  # standard deviation of new weights


class GivenHead(NamedTuple):
    """A head that there is, to be trained further.

    Attributes:
        head: In float32, on the device of its target.
        token_ids: The tokens that it can say, ``[draft vocab]``.
    """

    head: DraftHead
    token_ids: torch.Tensor


def given_head(source: str, family: str, target: TransformersTarget) -> GivenHead:
    """Reads a head to begin from, in the convention that its file declares.

    Args:
        source: A folder, a file or a hub name.
        family: What it must be, such as ``eagle3``.
        target: What it was trained for.

    Raises:
        ModelError: It cannot be read, or does not fit the target.
        ConfigError: It is of another family.
    """
    checkpoint = read_checkpoint(source, target)
    if checkpoint.family != family:
        raise ConfigError(
            f"the head {source!r} is of the family {checkpoint.family}, not {family}",
            hint=f"train one of the family {checkpoint.family}, or begin from another head",
        )
    built = copy.deepcopy(checkpoint.build(None, torch.float32, target.device))
    ids = checkpoint.draft_token_ids
    if ids is None:
        ids = torch.arange(target.vocab_size)
    return GivenHead(built.requires_grad_(True).train(), ids)


def draft_vocabulary(
    texts: Iterable[TrainingText], size: int, always: Sequence[int] = ()
) -> torch.Tensor:
    """Returns the tokens that a target says most often, ``[size]`` in ascending order.

    After FR-Spec (Zhao et al., 2025), counted over answers of the target itself.

    Args:
        texts: Of which the answers are counted.
        size: Most tokens.
        always: Tokens that are in it in any case, such as those that end an answer.
    """
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(text.token_ids[text.answer_start :])
    ranked = [token for token, _ in counts.most_common() if token not in set(always)]
    chosen = [*always, *ranked][:size]
    return torch.tensor(sorted(chosen), dtype=torch.long)


def layer_like(target: TransformersTarget) -> DraftLayerConfig:
    """Returns the shape of a layer as the target has them.

    Args:
        target: The target.
    """
    config = target.model.config.get_text_config()
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    rope = dict(getattr(config, "rope_parameters", None) or {})
    return DraftLayerConfig(
        hidden_size=hidden,
        intermediate_size=int(getattr(config, "intermediate_size", 4 * hidden)),
        num_heads=heads,
        num_kv_heads=int(getattr(config, "num_key_value_heads", heads) or heads),
        head_dim=int(getattr(config, "head_dim", None) or hidden // heads),
        norm_eps=float(getattr(config, "rms_norm_eps", 1e-6)),
        rope={"rope_type": "default", "rope_theta": float(rope.get("rope_theta", 10000.0))},
        max_positions=target.max_context,
    )


def new_eagle3(
    target: TransformersTarget, vocabulary: torch.Tensor, *, num_layers: int = 1, seed: int = 0
) -> Eagle3Head:
    """Returns an EAGLE-3 head that reads the target's LM head, with weights to begin from.

    Args:
        target: Whose states it reads.
        vocabulary: Tokens that it can say.
        num_layers: Its layers.
        seed: Of what is random in it.
    """
    layer = layer_like(target)
    config = Eagle3Config(
        layer=layer,
        vocab_size=target.vocab_size,
        draft_vocab_size=len(vocabulary),
        target_hidden_size=layer.hidden_size,
        feature_layers=default_feature_layers(len(target.decoder_layers)),
        num_layers=num_layers,
        own_lm_head=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = _random(Eagle3Head(config))
    with torch.no_grad():
        # The highest layer goes through as it is: the head begins as the target would go on.
        head.fc.weight[:, -layer.hidden_size :] += torch.eye(layer.hidden_size)
        _like_the_last_layers(head, target)
        _copy(
            head.hidden_norm, getattr(target.decoder_layers[-num_layers], "input_layernorm", None)
        )
        _copy(head.norm, target.final_norm)
    return head


def new_eagle(target: TransformersTarget, *, num_layers: int = 1, seed: int = 0) -> EagleHead:
    """Returns an EAGLE-1/2 head with weights to begin from.

    Args:
        target: Whose states it reads.
        num_layers: Its layers.
        seed: Of what is random in it.
    """
    layer = layer_like(target)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = _random(EagleHead(EagleConfig(layer, target.vocab_size, num_layers, fc_bias=False)))
    with torch.no_grad():
        head.fc.weight[:, layer.hidden_size :] += torch.eye(layer.hidden_size)
        _like_the_last_layers(head, target)
    return head


def _random(head: Head) -> Head:
    for parameter in head.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=_SMALL)
    return head


def _like_the_last_layers(head: FeatureHead, target: TransformersTarget) -> None:
    """Copies weights of the target's last layers as far as their shapes agree."""
    theirs = list(target.decoder_layers)[-head.num_layers :]
    for ours, layer in zip(head.draft_layers, theirs, strict=True):
        known = dict(layer.named_parameters())
        for name, parameter in ours.named_parameters():
            other = known.get(name)
            if other is None or parameter.ndim != other.ndim:
                continue
            # Of a wider input the state stands behind the embedding.
            part = parameter[..., -other.shape[-1] :]
            if part.shape == other.shape:
                part.copy_(other)


def _copy(ours: nn.Module, theirs: Any) -> None:
    weight, own = getattr(theirs, "weight", None), ours.get_parameter("weight")
    if isinstance(weight, torch.Tensor) and weight.shape == own.shape:
        own.copy_(weight)
