"""DraftRow: one row as a draft model sees it: its text so far, and how it chooses its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from specrag.decoding.drafter import DraftContext
from specrag.decoding.noise import Stream, draw, gumbel
from specrag.decoding.sampling import TokenHistory

_ERROR_SCALE = 1.0
"""How far the target's log-probabilities are taken to lie from the draft model's, in nats."""


class Choice(NamedTuple):
    """A drafted token.

    Attributes:
        token_id: A token of the target.
        worth: Estimated probability that the target agrees, given that it did so far.
        probs: ``[vocab]`` the law that it was drawn from; only where rejection sampling asks.
    """

    token_id: int
    worth: float
    probs: torch.Tensor | None = None


class TokenText(Protocol):
    """Where the tokens of a row are kept."""

    token_ids: list[int]

    def append(self, token: int) -> None:
        """Adds a committed token.

        Args:
            token: A token of the target.
        """


class PlainText:
    """The tokens of a row, for a draft that reads the target's own."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []

    def append(self, token: int) -> None:
        """Adds a committed token.

        Args:
            token: A token of the target.
        """
        self.token_ids.append(token)


class DraftRow:
    """Chooses tokens as the row itself does: same processors, same noise at the same position.

    Where rejection sampling verifies, they are drawn with noise of their own instead, and come
    with the law that they were drawn from.

    Args:
        context: The row's prompt and sampler.
        transcript: Where its text is kept; empty yet.

    Attributes:
        rejection: Whether the row is verified by rejection sampling.
    """

    def __init__(self, context: DraftContext, transcript: TokenText) -> None:
        sampler = context.sampler
        self.transcript = transcript
        self.rejection = context.rejection
        self._sampler = None if sampler is None or sampler.is_plain_argmax else sampler
        self._history = TokenHistory((), 2 * len(context.prompt_ids) + 1)
        self.observe(context.prompt_ids)

    @property
    def is_plain(self) -> bool:
        """Whether it takes the likeliest token, whatever came before."""
        return self._sampler is None

    @torch.inference_mode()  # as the proposals are: the history is written to in both
    def observe(self, token_ids: Sequence[int]) -> None:
        """Takes note of committed tokens.

        Args:
            token_ids: The tokens in order.
        """
        self._history.truncate(len(self.transcript.token_ids))
        for token in token_ids:
            self._history.append(token)
            self.transcript.append(token)

    def choose(self, logits: torch.Tensor, ahead: Sequence[int]) -> Choice | None:
        """Chooses the next token.

        Args:
            logits: ``[vocab]`` of the target's vocabulary.
            ahead: Tokens assumed behind the committed ones.

        Returns:
            None where the row's processors leave no token: its text will never come to this.
        """
        if self._sampler is None:
            return _likeliest(precise(logits), self.rejection)
        history = self._assumed(ahead)
        scores = self._sampler.process(logits, history)
        if bool((scores == -torch.inf).all()):
            return None
        if self._sampler.is_greedy:
            return _likeliest(scores, self.rejection)
        stream = Stream.DRAFT if self.rejection else Stream.TARGET
        token = draw(scores, self._sampler.seed, len(history), stream)
        probs = torch.softmax(scores.double(), dim=-1)
        if self.rejection:
            # The worth must not depend on the draw: else dropping a node would change the law.
            return Choice(token, float(probs.square().sum()), probs)
        return Choice(token, float(probs[token]))

    def log_probs(self, logits: torch.Tensor, aheads: Sequence[Sequence[int]]) -> torch.Tensor:
        """Returns how likely the target is to choose each token.

        A sampling target takes the token with the largest sum of log-probability and noise, and
        the noise is known. A token's probability is then that of having the largest sum when the
        target's log-probabilities differ from the model's by noise of their own.

        Args:
            logits: ``[nodes, vocab]`` of the target's vocabulary.
            aheads: For each node the tokens assumed behind the committed ones.

        Returns:
            Log-probabilities ``[nodes, vocab]``.
        """
        if self._sampler is None:
            return torch.log_softmax(precise(logits), dim=-1)
        rows = [self._noisy(row, ahead) for row, ahead in zip(logits, aheads, strict=True)]
        return torch.stack(rows)

    def _noisy(self, logits: torch.Tensor, ahead: Sequence[int]) -> torch.Tensor:
        assert self._sampler is not None, "a plain row has no noise"
        history = self._assumed(ahead)
        scores = self._sampler.process(logits, history).double()
        if bool((scores == -torch.inf).all()):
            return scores
        scores = torch.log_softmax(scores, dim=-1)
        if self._sampler.is_greedy:
            return scores
        tokens = scores.isfinite().nonzero().squeeze(-1)
        scores[tokens] += gumbel(tokens, self._sampler.seed, len(history), Stream.TARGET)
        return torch.log_softmax(scores / _ERROR_SCALE, dim=-1)

    def _assumed(self, ahead: Sequence[int]) -> torch.Tensor:
        self._history.truncate(len(self.transcript.token_ids))
        for token in ahead:
            self._history.append(token)
        return self._history.view()


def precise(logits: torch.Tensor) -> torch.Tensor:
    """Returns logits in single precision at least: sums over a vocabulary need it.

    Args:
        logits: Of any shape.
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _likeliest(scores: torch.Tensor, rejection: bool) -> Choice:
    token = int(scores.argmax())
    if not rejection:
        return Choice(token, float((scores[token] - scores.logsumexp(-1)).exp()))
    probs = torch.zeros_like(scores, dtype=torch.float64)
    probs[token] = 1.0
    return Choice(token, 1.0, probs)
