"""The draft heads that ship with the package: for which target, of which kind, where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specrag.errors import ModelError
from specrag.models.target import TargetModel

CARD = "card.json"
_TRAINED = {"eagle3": "eagle", "draft": "distill"}
_FOLDER = Path(__file__).parent / "shipped_heads"


@dataclass(frozen=True, slots=True)
class ShippedHead:
    """A head of ours.

    Attributes:
        folder: Where it lies.
        kind: Such as ``eagle3``.
        target: Name of the target that it was trained for.
        fingerprint: Of that target.
    """

    folder: Path
    kind: str
    target: str
    fingerprint: str


def shipped_heads(folder: Path = _FOLDER) -> Iterator[ShippedHead]:
    """Yields the heads that ship with the package.

    Args:
        folder: Where they lie.
    """
    for path in sorted(folder.glob(f"*/*/{CARD}")):
        card = json.loads(path.read_text(encoding="utf-8"))
        yield ShippedHead(path.parent, card["kind"], card["target"], card["fingerprint"])


def shipped_head(kind: str, target: TargetModel, folder: Path = _FOLDER) -> ShippedHead:
    """Returns the head of a kind that was trained for a target.

    Args:
        kind: Such as ``eagle3``.
        target: Told by its weights, whatever it is called.
        folder: Where the heads lie.

    Raises:
        ModelError: None ships for this target.
    """
    known = [head for head in shipped_heads(folder) if head.kind == kind]
    found = next((head for head in known if head.fingerprint == target.fingerprint), None)
    if found is None:
        names = sorted({head.target for head in known})
        there = f"; there is one for {', '.join(names)}" if names else ""
        what = "model" if kind == "draft" else "head"
        raise ModelError(
            f"no {kind} {what} ships for {target.name}{there}",
            hint=f"name a {what}: {kind}:FOLDER or {kind}:HUB-NAME, or train one: "
            f"specrag train {_TRAINED.get(kind, kind)}",
        )
    return found
