"""NamedHead: a draft head by its name, which is read and tried when its target is known."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from specrag.decoding.budget import PassCosts
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.drafters.checkpoints.checkpoint import DraftHead, HeadCheckpoint
from specrag.drafters.checkpoints.family import Family
from specrag.drafters.checkpoints.files import local_head
from specrag.drafters.checkpoints.probe import probe
from specrag.drafters.checkpoints.reader import read_checkpoint
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.shipped import CARD, shipped_head
from specrag.errors import ConfigError
from specrag.home import home
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer
from specrag.models.transformers_target import TransformersTarget

_LOG = logging.getLogger(__name__)


class NamedHead(Drafter):
    """Finds a head, checks that it agrees with the target, and lets it draft.

    How a head's file has to be read is found out once for each target and head, and kept in
    ``SPECRAG_HOME``: the target has to answer some prompts for it.

    Args:
        kind: ``eagle``, ``eagle3`` or ``medusa``: the family that the head must be of.
        source: A folder, a file or a hub name; empty for the head that ships for the target.

    Raises:
        ModelError: The source is a path, and nothing is there.
    """

    def __init__(self, kind: str, source: str = "") -> None:
        if source:
            local_head(source)  # a typo should not cost the time of loading the target
        self.name = f"{kind}:{source}" if source else kind
        self._kind = Family(kind)
        self._source = source
        self._inner: Drafter | None = None
        self._target: TargetModel | None = None

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Reads the head, tries it, and binds it.

        Args:
            target: Whose states it reads.
            tokenizer: The target's.
            costs: What a pass of the target costs.

        Raises:
            ModelError: There is no such head, or it does not fit or agree.
            ConfigError: It is of another family, or the target is none that heads can read.
        """
        if self._inner is None or self._target is not target:
            self._inner = self._read(target, tokenizer)
            self._target = target
        self._inner.bind(target, tokenizer, costs)
        self.feature_layers = self._inner.feature_layers
        self.levels, self.device = self._inner.levels, self._inner.device

    def open(self, contexts: Sequence[DraftContext]) -> DraftSession:
        """Starts drafting for a batch.

        Args:
            contexts: One for each row.
        """
        assert self._inner is not None, f"{self.name} must be bound to a target before it is opened"
        return self._inner.open(contexts)

    def _read(self, target: TargetModel, tokenizer: Tokenizer) -> Drafter:
        if not isinstance(target, TransformersTarget):
            raise ConfigError(f"{self.name} reads the states of a transformers model")
        shipped = "" if self._source else str(shipped_head(self._kind, target).folder)
        checkpoint = read_checkpoint(shipped or self._source, target)
        if checkpoint.family is not self._kind:
            raise ConfigError(
                f"the head {self._source!r} is of the family {checkpoint.family}, not {self._kind}",
                hint=f"write {checkpoint.family}:{self._source}",
            )
        # What ships was tried when it was trained, on the weights that its card names.
        head = (
            checkpoint.build(None, target.dtype, target.device)
            if shipped
            else _tried(target, tokenizer, checkpoint)
        )
        return self._drafter(head, checkpoint, Path(shipped or self._source))

    def _drafter(self, head: DraftHead, checkpoint: HeadCheckpoint, folder: Path) -> Drafter:
        ids = checkpoint.draft_token_ids
        if isinstance(head, MedusaHeads):
            return MedusaDrafter(head, ids, _accuracies(folder), self.name)
        return EagleDrafter(head, ids, name=self.name)


def _tried(
    target: TransformersTarget, tokenizer: Tokenizer, checkpoint: HeadCheckpoint
) -> DraftHead:
    """The head under the reading that agrees, looked up where it was found out before."""
    path = home() / "probes" / f"{_key(target, checkpoint)}.json"
    known = [json.dumps(asdict(config), default=list) for config in checkpoint.variants]
    try:
        place = known.index(json.loads(path.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, KeyError, TypeError):
        _LOG.info("draft head %s: trying how it agrees with %s", checkpoint.name, target.name)
        found = probe(target, tokenizer, checkpoint)
        _keep(path, json.dumps(asdict(found.checkpoint.config), default=list))
        return found.head
    return checkpoint.build(checkpoint.variants[place], target.dtype, target.device)


def _key(target: TransformersTarget, checkpoint: HeadCheckpoint) -> str:
    digest = hashlib.sha256(target.fingerprint.encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        flat = tensor.reshape(-1)
        sample = flat[:: max(1, flat.numel() // 64)][:64].float()
        digest.update(f"{name}{tuple(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def _keep(path: Path, config: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"config": config}), encoding="utf-8")
    except OSError:
        pass  # a home that cannot be written to costs some seconds at each start, nothing else


def _accuracies(folder: Path) -> list[list[float]] | None:
    """How often each rank of each head is right, where a card of ours tells it."""
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        found: list[list[float]] | None = card.get("accuracies")
    except (OSError, ValueError, AttributeError):
        return None
    return found
