"""Reading a draft head for a target: files, family, shape and fit, in this order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch

from specrag.drafters.checkpoints.check import check_checkpoint
from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint
from specrag.drafters.checkpoints.eagle import read_eagle
from specrag.drafters.checkpoints.eagle3 import read_eagle3
from specrag.drafters.checkpoints.family import Family, family_of
from specrag.drafters.checkpoints.files import HeadFiles, read_head_files
from specrag.drafters.checkpoints.medusa import read_medusa
from specrag.drafters.checkpoints.names import plain_names
from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.models.transformers_target import TransformersTarget

_LOG = logging.getLogger(__name__)
_EMBEDDING = "embed_tokens.weight"
_CHUNK = 4096
_Read = Callable[[Mapping[str, torch.Tensor], Settings, TargetShape, str], HeadCheckpoint]
_READERS: Mapping[Family, _Read] = {
    Family.EAGLE: read_eagle,
    Family.EAGLE3: read_eagle3,
    Family.MEDUSA: read_medusa,
}


def read_checkpoint(name_or_path: str, target: TransformersTarget) -> HeadCheckpoint:
    """Reads a draft head of any public format and checks that it fits a target.

    What had to be inferred is logged; whether the head agrees with the target's text is for
    ``probe`` to say.

    Args:
        name_or_path: A folder, a file or a hub name.
        target: What it is to draft for.

    Raises:
        ModelError: There is no such head, specrag does not run it, or it does not fit.
    """
    files = read_head_files(name_or_path)
    embeddings: torch.Tensor = target.model.get_input_embeddings().weight
    checkpoint = checkpoint_of(files, TargetShape.of(target), embeddings)
    for note in checkpoint.notes:
        _LOG.info("draft head %s: %s", checkpoint.name, note)
    return checkpoint


def checkpoint_of(
    files: HeadFiles, target: TargetShape, embeddings: torch.Tensor | None = None
) -> HeadCheckpoint:
    """Reads a draft head from what its files hold, and checks it.

    Args:
        files: What was found.
        target: What it is to draft for.
        embeddings: ``[vocab, hidden]`` of the target; a copy of them in the head is left out.

    Raises:
        ModelError: specrag does not run the head, or it does not fit.
    """
    settings = Settings(files.config, files.name)
    tensors = plain_names(files.tensors, files.name)
    family = family_of(tensors, settings, files.name)
    own = tensors.get(_EMBEDDING) if family is Family.EAGLE3 else None
    if own is not None and embeddings is not None and _same(own, embeddings):
        del tensors[_EMBEDDING]
    checkpoint = _READERS[family](tensors, settings, target, files.name)
    check_checkpoint(checkpoint, target)
    return checkpoint


def _same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two embeddings differ by no more than one rounding to half precision."""
    if ours.shape != theirs.shape:
        return False
    for start in range(0, len(ours), _CHUNK):
        mine = ours[start : start + _CHUNK].float()
        other = theirs[start : start + _CHUNK].float().to(mine.device)
        if not torch.allclose(mine, other, rtol=2**-7, atol=1e-6):
            return False
    return True
