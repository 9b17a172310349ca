"""The tokens that a trimmed head names: its ``d2t`` and ``t2d`` tables, or its ``token_map``."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from specrag.errors import ModelError

_HINT = "the table belongs to another target or another head; fetch the head again"


def draft_token_ids(
    tensors: Mapping[str, torch.Tensor],
    num_tokens: int | None,
    vocab_size: int,
    name: str,
    notes: list[str],
) -> torch.Tensor | None:
    """Returns the target's token for each of the head's.

    ``d2t`` holds offsets, token i of the head being ``i + d2t[i]`` of the target. Files that hold
    the tokens themselves there, or nothing useful beside a good ``t2d``, are read too.

    Args:
        tensors: With ``d2t`` ``[draft vocab]`` and ``t2d`` ``[vocab]``, where there are such.
        num_tokens: Rows of the head's LM head; None where it has none.
        vocab_size: Tokens of the target.
        name: Of the head, for messages.
        notes: What was inferred or overruled is added.

    Returns:
        ``[draft vocab]`` int64; None where the head names every token by the target's number.

    Raises:
        ModelError: The tables are damaged, or a trimmed head has none.
    """
    offsets, marks = tensors.get("d2t"), tensors.get("t2d")
    marked = None if marks is None else _marked(marks, vocab_size, name)
    if offsets is None and marked is not None and len(marked) in (num_tokens, vocab_size):
        notes.append("d2t is missing, and made of t2d")
        found = marked
    elif offsets is None:
        _refuse_untold(num_tokens, vocab_size, name)
        return None
    else:
        size = num_tokens if num_tokens is not None else len(offsets)
        found = _from_offsets(_whole(offsets, size, name), marked, vocab_size, name, notes)
    whole = len(found) == vocab_size
    return None if whole and torch.equal(found, torch.arange(vocab_size)) else found


def _marked(marks: torch.Tensor, vocab_size: int, name: str) -> torch.Tensor:
    if marks.dim() != 1 or len(marks) != vocab_size:
        raise ModelError(
            f"the draft head {name!r} is made for a target of {marks.numel()} tokens (t2d), this "
            f"one has {vocab_size}",
            hint="use the head of this target, or train one: specrag train eagle",
        )
    return marks.bool().nonzero().flatten()


def _refuse_untold(num_tokens: int | None, vocab_size: int, name: str) -> None:
    if num_tokens is not None and num_tokens != vocab_size:
        raise ModelError(
            f"the draft head {name!r} names {num_tokens} tokens and the target has {vocab_size}, "
            "but no d2t tells which they are",
            hint="fetch the whole head; d2t lies among its weights",
        )


def _whole(offsets: torch.Tensor, size: int, name: str) -> torch.Tensor:
    integers = not (offsets.is_floating_point() or offsets.is_complex())
    if not integers or offsets.dtype == torch.bool or tuple(offsets.shape) != (size,):
        raise ModelError(
            f"d2t of the draft head {name!r} must hold {size} whole numbers, one for each row of "
            f"its LM head; it holds {offsets.dtype} of the shape {tuple(offsets.shape)}",
            hint=_HINT,
        )
    return offsets.long()


def _from_offsets(
    offsets: torch.Tensor,
    marked: torch.Tensor | None,
    vocab_size: int,
    name: str,
    notes: list[str],
) -> torch.Tensor:
    told, absolute = torch.arange(len(offsets)) + offsets, offsets
    fits = [ids for ids in (told, absolute) if not _fault(ids, vocab_size)]
    if marked is not None and len(marked) == len(offsets):
        agreeing = [ids for ids in fits if torch.equal(ids.sort().values, marked)]
        if not agreeing and not offsets.any():
            notes.append("d2t is empty, and made of t2d")
            return marked
        fits = agreeing or fits
    if not fits:
        raise ModelError(
            f"d2t of the draft head {name!r} does not fit a target of {vocab_size} tokens: "
            f"{_fault(told, vocab_size)}",
            hint=_HINT,
        )
    if fits[0] is absolute:
        notes.append("d2t holds tokens, not offsets")
    elif marked is not None and not torch.equal(told.sort().values, marked):
        notes.append("t2d contradicts d2t, and is ignored")
    return fits[0]


def check_token_ids(ids: torch.Tensor, vocab_size: int, what: str, name: str) -> None:
    """Refuses tokens that a target has not, or that come twice.

    Args:
        ids: ``[draft vocab]``.
        vocab_size: Tokens of the target.
        what: How the table is called.
        name: Of the head.

    Raises:
        ModelError: They do not fit.
    """
    if fault := _fault(ids, vocab_size):
        raise ModelError(
            f"{what} of the draft head {name!r} does not fit a target of {vocab_size} tokens: "
            f"{fault}",
            hint=_HINT,
        )


def _fault(ids: torch.Tensor, vocab_size: int) -> str:
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if len(outside):
        return f"{len(outside)} of {len(ids)} lie outside, the first is {int(outside[0])}"
    distinct = len(set(ids.tolist()))
    return "" if distinct == len(ids) else f"{len(ids)} entries name {distinct} tokens"
