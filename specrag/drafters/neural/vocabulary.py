"""SharedVocabulary: what a draft model of any tokenizer and its target have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from specrag.decoding.tree import ROOT, DraftTree
from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

LEAST_SHARE = 0.6
"""Below this share of common tokens a drafter of another tokenizer is refused."""

SAMPLE = """\
The committee met on Tuesday, 14 May 2024, and agreed that the report (42 pages) should be
published online; nobody objected. "How far is it to the station?" she asked. It's 3.5 km.

def mean(values: list[float]) -> float:
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)

Solve 2x + 7 = 19: subtract 7, so 2x = 12, therefore x = 6. Le café était fermé. Über 100 €.
"""
"""Prose, code, sums and accents: of its tokens the share that both vocabularies have is asked."""

_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")


class SharedVocabulary:
    """Translates between the tokens of a draft model and those of its target.

    Where both have the same tokens under the same numbers nothing is translated; further numbers
    at the end, be they padding or added tokens, are no difference. Otherwise tokens are matched
    by the bytes they stand for, and the draft model is held to those that the target has too:
    token-level intersection, Timor et al., "Accelerating LLM Inference with Lossless Speculative
    Decoding Algorithms for Heterogeneous Vocabularies" (2025).

    Args:
        target: Whose tokens are guessed.
        tokenizer: The target's.
        model: The draft model.
        model_tokenizer: The draft model's.

    Raises:
        ConfigError: They have too few tokens in common.
    """

    def __init__(
        self,
        target: TargetModel,
        tokenizer: Tokenizer,
        model: TargetModel,
        model_tokenizer: Tokenizer,
    ) -> None:
        self._width = target.vocab_size
        self._known = min(target.vocab_size, model.vocab_size)
        self._end = model_tokenizer.eos_token_id or 0
        self.is_identity = _same_numbers(tokenizer, model_tokenizer)
        self.to_draft: Mapping[int, int] = {}
        self._places: tuple[torch.Tensor, torch.Tensor] | None = None
        if self.is_identity:
            return
        pairs = _matched(tokenizer, model_tokenizer)
        pairs = {t: d for t, d in pairs.items() if t < target.vocab_size and d < model.vocab_size}
        _refuse_small(pairs, target, tokenizer, model, model_tokenizer)
        self.to_draft = pairs
        self._places = torch.tensor(list(pairs)), torch.tensor(list(pairs.values()))

    def target_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns the draft model's logits over the target's vocabulary.

        Args:
            logits: ``[..., draft vocab]``.

        Returns:
            ``[..., target vocab]``; minus infinity where the draft model has no such token.
        """
        if self._places is None and logits.shape[-1] == self._width:
            return logits
        widened = logits.new_full((*logits.shape[:-1], self._width), -torch.inf)
        if self._places is None:
            widened[..., : self._known] = logits[..., : self._known]
            return widened
        if self._places[0].device != logits.device:
            theirs, ours = self._places
            self._places = theirs.to(logits.device), ours.to(logits.device)
        widened[..., self._places[0]] = logits[..., self._places[1]]
        return widened

    def draft_ids(self, token_ids: Sequence[int]) -> list[int]:
        """Returns the draft model's tokens for target tokens that it proposed itself.

        Args:
            token_ids: Tokens that both have. One that only the target has, which happens where
                it has more numbers at the end, becomes the draft model's end token.
        """
        if self.is_identity:
            return [token if token < self._known else self._end for token in token_ids]
        return [self.to_draft[token] for token in token_ids]

    def has(self, token_id: int) -> bool:
        """Tells whether the draft model has a token of the target.

        Args:
            token_id: A token of the target.
        """
        return token_id < self._known if self.is_identity else token_id in self.to_draft

    def pruned(self, tree: DraftTree) -> DraftTree:
        """Returns the part of a tree that the draft model can read.

        Args:
            tree: Tokens of the target.
        """
        kept: set[int] = {ROOT}
        for node, (token, parent) in enumerate(zip(tree.token_ids, tree.parents, strict=True)):
            if parent in kept and self.has(token):
                kept.add(node)
        return tree if len(kept) == len(tree) + 1 else tree.selected(sorted(kept - {ROOT}))


def token_bytes(tokenizer: Tokenizer) -> dict[int, bytes]:
    """Returns the bytes that each token stands for, special tokens left out.

    Args:
        tokenizer: Byte-level (``Ġ`` is a space), SentencePiece (``▁`` is a space, ``<0x0A>`` a
            byte) or plain.
    """
    vocabulary: dict[str, int] = tokenizer.backend.get_vocab()
    added = _added(tokenizer)
    regular = {token: i for token, i in vocabulary.items() if i not in added}
    if any(token.startswith("▁") for token in regular):
        found = {i: _piece_bytes(token) for token, i in regular.items()}
    elif any(token.startswith("Ġ") for token in regular):
        letters = _byte_letters()
        found = {
            i: bytes(letters[c] for c in token)
            for token, i in regular.items()
            if all(c in letters for c in token)
        }
    else:
        found = {i: token.encode() for token, i in regular.items()}
    plain = {i: text.encode() for i, (text, special) in added.items() if not special}
    return {**found, **plain}


def special_texts(tokenizer: Tokenizer) -> dict[int, str]:
    """Returns the special tokens: marks that stand for no text.

    Args:
        tokenizer: Any.
    """
    return {i: text for i, (text, special) in _added(tokenizer).items() if special}


def _added(tokenizer: Tokenizer) -> dict[int, tuple[str, bool]]:
    """The added tokens: id to text, and whether it is a mark."""
    found = {
        i: (str(token), bool(getattr(token, "special", False)))
        for i, token in tokenizer.backend.added_tokens_decoder.items()
    }
    texts = dict(zip(tokenizer.backend.all_special_ids, _special_names(tokenizer), strict=True))
    return {**found, **{int(i): (text, True) for i, text in texts.items()}}


def _special_names(tokenizer: Tokenizer) -> list[str]:
    return [str(name) for name in tokenizer.backend.all_special_tokens]


def _piece_bytes(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _byte_letters() -> dict[str, int]:
    """The letter that byte-level vocabularies write for each byte, as GPT-2 introduced them."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown}
    return {**letters, **{chr(256 + place): byte for place, byte in enumerate(hidden)}}


def _same_numbers(ours: Tokenizer, theirs: Tokenizer) -> bool:
    """Whether the smaller vocabulary is the beginning of the larger one."""
    if ours.backend is theirs.backend:
        return True
    small, large = sorted((ours.backend.get_vocab(), theirs.backend.get_vocab()), key=len)
    if any(large.get(token) != i for token, i in small.items()):
        return False
    return all(i >= len(small) for token, i in large.items() if token not in small)


def _matched(ours: Tokenizer, theirs: Tokenizer) -> dict[int, int]:
    """Target token to draft token, one to one: equal bytes, or the same role."""
    by_text: dict[bytes, int] = {}
    for token, text in sorted(token_bytes(theirs).items(), reverse=True):
        if text:
            by_text[text] = token  # of several with the same bytes the lowest number stands
    pairs: dict[int, int] = {}
    for token, text in sorted(token_bytes(ours).items()):
        if text in by_text:
            pairs[token] = by_text.pop(text)
    marks = {name: token for token, name in special_texts(theirs).items()}
    for token, name in special_texts(ours).items():
        if name in marks:
            pairs[token] = marks[name]
    for role in _ROLES:
        mine, other = _role(ours, role), _role(theirs, role)
        if mine is not None and other is not None and other not in pairs.values():
            pairs[mine] = other
    return pairs


def _role(tokenizer: Tokenizer, role: str) -> int | None:
    found = getattr(tokenizer.backend, f"{role}_id", None)
    return None if found is None else int(found)


def _refuse_small(
    pairs: Mapping[int, int],
    target: TargetModel,
    tokenizer: Tokenizer,
    model: TargetModel,
    model_tokenizer: Tokenizer,
) -> None:
    smaller = min(tokenizer.vocab_size, model_tokenizer.vocab_size)
    sample = tokenizer.encode(SAMPLE)
    shares = {
        "of the smaller vocabulary": len(pairs) / smaller,
        "of the tokens of a sample text": sum(t in pairs for t in sample) / max(1, len(sample)),
    }
    for what, share in shares.items():
        if share < LEAST_SHARE:
            raise ConfigError(
                f"the draft model {model.name!r} has too few tokens in common with the target "
                f"{target.name!r}: {share:.0%} {what}, at least {LEAST_SHARE:.0%} are needed",
                hint="take a draft model of the target's family, or draft by 'suffix'",
            )
