"""Projection: the rows of an LM head that a draft reads, so that naming tokens stays cheap."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from specrag.decoding.drafter import DraftContext
from specrag.drafters.heads.logit_rule import LogitRule, lm_head_of, measured_rule
from specrag.errors import ConfigError
from specrag.models.quantization import PackedLinear, packed
from specrag.models.target import TargetModel

_LOW = (torch.bfloat16, torch.float16)
"""On a CPU these take a pass over the weight for each state: rows that are copied anyway are
copied to float32. 8192 rows of width 576 and 4 states took 3.9 ms of one core, and then 1.6."""

_FEW = 8


@dataclass(frozen=True, slots=True)
class _Extra:
    """Rows for further tokens, and which rows of a batch may say them."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    allowed: torch.Tensor  # [rows, extra]
    is_shared: bool  # whether every row may say every one of them


class Projection:
    """Turns states into logits of a part of the vocabulary.

    A draft needs no rare tokens: "FR-Spec" (Zhao et al., 2025) drafts with the most frequent ones
    of the target's own LM head, EAGLE-3 with a smaller LM head of its own. What is rare in general
    may be frequent in one conversation, such as the names in a passage: ``open`` adds the tokens
    of prompts and passages, for the rows that have them.

    Logits are the target's own ones wherever its LM head is read: with its bias, and scaled and
    capped as the target does, so that probabilities are its own too.

    Args:
        weight: ``[vocab, hidden]``, or only the rows of ``token_ids``; shared, not copied, where
            ``token_ids`` are all.
        vocab_size: Of the target.
        token_ids: Tokens to name, ``[draft vocab]``, in the order of the logits; None names all.
        bias: ``[vocab]``, or only of ``token_ids``.
        rule: What is done to the products.

    Attributes:
        token_ids: ``[draft vocab]`` the target's token behind each logit.
        weight: ``[draft vocab, hidden]``, without rows that one batch added.
        bias: ``[draft vocab]``, if there is one.
        vocab_size: Of the target.

    Raises:
        ConfigError: The tokens do not fit the weight or the vocabulary.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        vocab_size: int,
        token_ids: torch.Tensor | Sequence[int] | None = None,
        *,
        bias: torch.Tensor | None = None,
        rule: LogitRule = LogitRule(),  # noqa: B008 - it is frozen
    ) -> None:
        self.vocab_size = vocab_size
        self.is_whole = token_ids is None
        self._rule = rule
        self._extra: _Extra | None = None
        self._packed: PackedLinear | None = None
        self.weight, self.bias = weight, bias
        self._source: tuple[torch.Tensor, torch.Tensor | None] | None = None
        if token_ids is None:
            _check_rows(weight, vocab_size, vocab_size)
            self.token_ids = torch.arange(vocab_size, device=weight.device)
            return
        self.token_ids = _checked_ids(token_ids, vocab_size).to(weight.device)
        _check_rows(weight, vocab_size, len(self.token_ids))
        if len(weight) == vocab_size:
            self._source = weight, bias
            with torch.no_grad():
                self.weight, self.bias = _rows(weight, bias, self.token_ids)

    @classmethod
    def shared(
        cls, target: TargetModel, token_ids: torch.Tensor | Sequence[int] | None = None
    ) -> Projection:
        """Returns rows of the target's LM head.

        Args:
            target: Whose LM head is read; it runs once over a few tokens, which shows what it
                does to its logits.
            token_ids: Tokens to name; None reads the target's own weights, without a copy.

        Raises:
            ConfigError: A token is not in the vocabulary, or stands twice.
            ModelError: The target has no LM head that can be read by rows.
        """
        weight, bias = lm_head_of(target)
        rule = measured_rule(target)
        return cls(weight, target.vocab_size, token_ids, bias=bias, rule=rule)

    @classmethod
    def own(
        cls,
        weight: torch.Tensor,
        token_ids: torch.Tensor | Sequence[int] | None,
        vocab_size: int,
    ) -> Projection:
        """Returns the LM head that a draft head brings along.

        Args:
            weight: ``[draft vocab, hidden]``; with a row for each token of the target it can be
                trimmed further.
            token_ids: The target's token of each row; None where it has one for every token.
            vocab_size: Of the target.

        Raises:
            ConfigError: The tokens do not fit the weight or the vocabulary.
        """
        return cls(weight.detach(), vocab_size, token_ids)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the tokens that can be named.

        Args:
            states: ``[..., hidden]``; with added rows ``[rows, ..., hidden]``, a first dimension
                for the rows of the batch that they were taken for.

        Returns:
            ``[..., draft vocab]``, in float32 or the precision of the weight; minus infinity for
            a token that only another row has added.
        """
        found = self._rule.applied(self._own_products(states))
        extra = self._extra
        if extra is None:
            return found
        added = self._rule.applied(_products(states, extra.weight, extra.bias))
        if not extra.is_shared:
            shape = (len(extra.allowed), *[1] * (states.dim() - 2), extra.allowed.shape[1])
            added = added.masked_fill(~extra.allowed.view(shape), -torch.inf)
        return torch.cat([found, added], dim=-1)

    def _own_products(self, states: torch.Tensor) -> torch.Tensor:
        if self._packed is None:
            return _products(states, self.weight, self.bias)
        found: torch.Tensor = self._packed(states.float())
        return found

    def packed(self, quantization: str) -> Projection:
        """Returns the same with packed rows, for a target that is packed itself.

        Args:
            quantization: See ``PackedLinear``; ``none`` changes nothing.
        """
        if quantization == "none":
            return self
        made = copy.copy(self)
        made._packed = packed(self.weight, self.bias, quantization=quantization)
        return made

    def widened(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns logits of the whole vocabulary.

        Args:
            logits: ``[..., draft vocab]``.

        Returns:
            ``[..., vocab]``; minus infinity for a token that cannot be named.
        """
        if self.is_whole:
            return logits
        wide = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
        wide[..., self.token_ids] = logits
        return wide

    def places(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Returns where the logits of these tokens stand, and -1 for those without one.

        Args:
            token_ids: Any shape.
        """
        places = self.token_ids.new_full((self.vocab_size,), -1)
        places[self.token_ids] = torch.arange(len(self.token_ids), device=places.device)
        return places[token_ids]

    def to(
        self, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> Projection:
        """Returns the same on another device or in another precision.

        Args:
            device: Where to; None stays.
            dtype: In which precision; None stays.
        """
        moved = copy.copy(self)
        moved.weight = self.weight.to(device, dtype)
        moved.bias = None if self.bias is None else self.bias.to(device, dtype)
        moved.token_ids = self.token_ids.to(device)
        moved._packed = None
        # Further rows come from weights as large as a model; what trains or tests adds none.
        moved._source = None if moved.weight is not self.weight else self._source
        return moved

    def part(self, places: torch.Tensor) -> Projection:
        """Returns a projection that names only some of these tokens.

        Args:
            places: Where the logits of its tokens stand here.
        """
        part = copy.copy(self)
        part.is_whole, part._source, part._packed = False, None, None
        part.weight = self.weight.index_select(0, places)
        part.bias = None if self.bias is None else self.bias.index_select(0, places)
        part.token_ids = self.token_ids[places]
        return part

    def open(self, contexts: Iterable[DraftContext]) -> BatchProjection:
        """Returns the projection of a batch, with the tokens of its prompts and passages.

        Args:
            contexts: One for each row.
        """
        return BatchProjection(self, contexts)

    def _added(self, per_row: Sequence[torch.Tensor]) -> Projection:
        """The same with further tokens for each row of a batch."""
        token_ids = _different(torch.cat([*per_row, self.token_ids[:0]]))
        if not len(token_ids) or self._source is None:
            return self
        extended = copy.copy(self)
        with torch.no_grad():
            weight, bias = _rows(*self._source, token_ids)
            allowed = torch.stack([torch.isin(token_ids, own) for own in per_row])
        extended._extra = _Extra(weight, bias, allowed, bool(allowed.all()))
        extended.token_ids = torch.cat([self.token_ids, token_ids])
        return extended


class BatchProjection:
    """The projection of a running batch; rows of the LM head are gathered when its rows change.

    Args:
        base: What every row can name.
        contexts: One for each row.
    """

    def __init__(self, base: Projection, contexts: Iterable[DraftContext]) -> None:
        self._base = base
        self._is_fixed = base._source is None
        self._is_static = torch.zeros(base.vocab_size, dtype=torch.bool)
        self._is_static[base.token_ids.cpu()] = True
        self._own: list[torch.Tensor] = []
        self._current: tuple[tuple[int, ...], Projection] = ((), base)
        for context in contexts:
            self.join(context)

    def join(self, context: DraftContext) -> int:
        """Adds a row.

        Args:
            context: Of the new row.

        Returns:
            Its index.
        """
        texts = () if self._is_fixed else (context.prompt_ids, *context.passages)
        said = torch.tensor([token for text in texts for token in text], dtype=torch.long)
        # A tokenizer may have more tokens than the model.
        said = _different(said[(said >= 0) & (said < self._base.vocab_size)])
        self._own.append(said[~self._is_static[said]].to(self._base.token_ids.device))
        return len(self._own) - 1

    def at(self, rows: Sequence[int]) -> Projection:
        """Returns the projection for some rows; cheap as long as they are those of last time.

        Args:
            rows: In the order of the states that it will be given.
        """
        if self._is_fixed:
            return self._base
        key = tuple(rows)
        if self._current[0] != key:
            self._current = key, self._base._added([self._own[row] for row in key])
        return self._current[1]


def _rows(
    weight: torch.Tensor, bias: torch.Tensor | None, token_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    token_ids = token_ids.to(weight.device)
    found = weight.index_select(0, token_ids)
    added = None if bias is None else bias.index_select(0, token_ids)
    if weight.device.type == "cpu" and weight.dtype in _LOW:
        return found.float(), None if added is None else added.float()
    return found, added


def _products(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """What a linear layer computes, in the precision of its weight."""
    states = states.to(weight.dtype)
    flat = states.reshape(-1, states.shape[-1])
    few = 1 < len(flat) <= _FEW and weight.device.type == "cpu" and weight.dtype not in _LOW
    if not few or torch.is_grad_enabled():
        return F.linear(states, weight, bias)
    # The same product from the other side reads the weight once, whatever the number of states.
    found = (weight @ flat.T).T.reshape(*states.shape[:-1], len(weight))
    return found if bias is None else found + bias


def _different(token_ids: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.unique(token_ids)
    return found


def _check_rows(weight: torch.Tensor, vocab_size: int, num_tokens: int) -> None:
    if len(weight) not in (vocab_size, num_tokens):
        raise ConfigError(
            f"an LM head of {len(weight)} rows names neither all {vocab_size} tokens of the "
            f"target nor the {num_tokens} tokens of its list",
            hint="the head was made for another model, or its list of tokens is another head's",
        )


def _checked_ids(token_ids: torch.Tensor | Sequence[int], vocab_size: int) -> torch.Tensor:
    ids = torch.as_tensor(token_ids, dtype=torch.long)
    if ids.dim() != 1 or not len(ids):
        raise ConfigError(f"draft tokens must be a list of at least one, got {tuple(ids.shape)}")
    least, most = int(ids.min()), int(ids.max())
    if least < 0 or most >= vocab_size:
        raise ConfigError(
            f"draft tokens reach from {least} to {most}, but the target has {vocab_size} tokens, "
            f"0 to {vocab_size - 1}",
            hint="the draft vocabulary is another model's",
        )
    if (different := len(_different(ids))) < len(ids):
        raise ConfigError(
            f"{len(ids)} draft tokens name only {different} different ones",
            hint="name each token once",
        )
    return ids
