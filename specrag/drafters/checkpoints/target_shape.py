"""TargetShape: the sizes of a target that a draft head must fit."""

from __future__ import annotations

from dataclasses import dataclass

from specrag.models.transformers_target import TransformersTarget


@dataclass(frozen=True, slots=True)
class TargetShape:
    """What a head's file is read against.

    Attributes:
        name: What users call the target.
        vocab_size: Its tokens.
        hidden_size: Width of its states.
        num_layers: Its decoder layers.
        head_dim: Width of its attention heads.
    """

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    head_dim: int

    @classmethod
    def of(cls, target: TransformersTarget) -> TargetShape:
        """Returns the shape of a target.

        Args:
            target: A loaded one.
        """
        config = target.model.config.get_text_config()
        hidden = int(config.hidden_size)
        head_dim = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
        layers = int(config.num_hidden_layers)
        return cls(target.name, target.vocab_size, hidden, layers, int(head_dim))
