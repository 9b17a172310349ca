"""MedusaHeads: small networks beside the LM head, each guessing one token further ahead."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import nn
from torch.nn import functional as F

from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM


@dataclass(frozen=True, slots=True)
class MedusaConfig:
    """The shape of Medusa heads.

    Attributes:
        hidden_size: Width of the target's states.
        vocab_size: Of the target.
        num_heads: Number of heads, each of which looks one token further.
        num_layers: Residual blocks that each state goes through.
        shared_layers: Whether the blocks of a head are one block, run through ``num_layers``
            times, as in the authors' files.
        own_lm_head: Whether each head has an LM head of its own; else all read the target's.
        draft_vocab_size: Tokens that the heads name; None stands for ``vocab_size``.
        bias: Whether the blocks have biases.
    """

    hidden_size: int
    vocab_size: int
    num_heads: int
    num_layers: int = 1
    shared_layers: bool = False
    own_lm_head: bool = False
    draft_vocab_size: int | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        for name in ("hidden_size", "vocab_size", "num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of Medusa heads must be at least 1, got {self!r}")
        if not 1 <= self.num_tokens <= self.vocab_size:
            raise ConfigError(
                f"Medusa heads name 1 to {self.vocab_size} tokens, as many as the target has; got "
                f"draft_vocab_size={self.draft_vocab_size}"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens that the heads name."""
        return self.vocab_size if self.draft_vocab_size is None else self.draft_vocab_size


class ResidualBlock(nn.Module):
    """Adds to a state what a linear layer and SiLU make of it; adds nothing when it is new.

    Args:
        hidden_size: Width of the state.
        bias: Whether the layer has a bias.
    """

    def __init__(self, hidden_size: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size, bias=bias)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the states behind the block.

        Args:
            states: ``[..., hidden]``.
        """
        return states + F.silu(self.linear(states))


class MedusaHeads(nn.Module):
    """Several heads on one state of the target: head i names the token i + 2 places further.

    "Medusa" (Cai et al., 2024). From the state of position t the target itself names token t + 1;
    head 0 names token t + 2, whatever t + 1 will be. New heads repeat the target's own state.

    Args:
        config: Their shape.
    """

    feature_layers = (FINAL_NORM,)

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        num_blocks = 1 if config.shared_layers else config.num_layers
        self.heads = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(width, config.bias) for _ in range(num_blocks)))
            for _ in range(config.num_heads)
        )
        if config.own_lm_head:
            self.lm_heads = nn.ModuleList(
                nn.Linear(width, config.num_tokens, bias=False) for _ in range(config.num_heads)
            )

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.config.num_heads

    @property
    def own_weights(self) -> tuple[torch.Tensor, ...]:
        """Their own LM heads, ``[draft vocab, hidden]``; none where they read the target's."""
        if not self.config.own_lm_head:
            return ()
        return tuple(head.get_parameter("weight") for head in self.lm_heads)

    def forward(self, states: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Returns what the LM head of each head reads.

        Args:
            states: ``[..., hidden]`` behind the target's final norm.
            count: How many heads to ask, the first ones; None asks all.

        Returns:
            ``[..., count, hidden]``.
        """
        repeats = self.config.num_layers if self.config.shared_layers else 1
        found = []
        for blocks in islice(self.heads, count):
            inner = states
            for _ in range(repeats):
                inner = blocks(inner)
            found.append(inner)
        return torch.stack(found, dim=-2)

    def logits(self, states: torch.Tensor, projection: Projection) -> torch.Tensor:
        """Returns what every head says.

        Args:
            states: ``[..., hidden]`` behind the target's final norm.
            projection: The target's LM head, of the tokens that the heads name. Heads with LM
                heads of their own take only the choice of tokens from it.

        Returns:
            ``[..., heads, draft vocab]``, the tokens in the order of the projection.
        """
        outputs = self(states)
        if not self.config.own_lm_head:
            return projection.logits(outputs)
        said = []
        for number, weight in enumerate(self.own_weights):
            if len(weight) != len(projection.token_ids):
                weight = weight[projection.token_ids]
            said.append(F.linear(outputs[..., number, :], weight))
        return torch.stack(said, dim=-2)

    @torch.no_grad()
    def start_from(self, projection: Projection) -> None:
        """Gives each head of its own LM head the target's, to be trained from there.

        Args:
            projection: The target's LM head, of the tokens that the heads name.
        """
        for weight in self.own_weights:
            weight.copy_(projection.weight)
