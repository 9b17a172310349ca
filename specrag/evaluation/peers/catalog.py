"""Peers by name: which there are, and what starts one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from specrag.errors import MissingExtraError
from specrag.evaluation.peers.engines import PEERS, PREFIX, checked
from specrag.evaluation.peers.environment import python
from specrag.evaluation.peers.process_arm import PeerArm
from specrag.evaluation.peers.weights import folder_of, precision_of
from specrag.evaluation.speed.arm import Arm

_WORKERS = Path(__file__).resolve().parent / "workers"


def expand(names: Sequence[str], model: str) -> list[str]:
    """Returns the peers that a user named; ``all`` stands for those that can be measured here.

    Args:
        names: As typed.
        model: What they are to decode with; of the installed peers, ``all`` means those that read
            it.

    Raises:
        ConfigError: A name is unknown.
    """
    found: list[str] = []
    for name in names:
        if name == "all":
            there = (known for known, peer in PEERS.items() if peer.version is not None)
            found += [known for known in there if PEERS[known].reads(model)]
        else:
            found.append(checked(name))
    return list(dict.fromkeys(found))


def open_peer(name: str, model: str, *, threads: int, draft: str | None = None) -> Arm:
    """Starts an engine and loads the model.

    Args:
        name: Of a peer.
        model: An embedded name, a hub name, a local folder or a ``.gguf`` path.
        threads: That it may use.
        draft: A draft model, for peers that take one.

    Raises:
        ConfigError: The peer is unknown, or cannot read this model.
        MissingExtraError: It is not installed.
        PeerError: It does not start.
    """
    plain = checked(name)
    peer = PEERS[plain]
    if peer.version is None:
        raise MissingExtraError(
            f"the engine {plain!r} is not installed", hint=f"specrag peers install {plain}"
        )
    weights = peer.weights(model)
    precision = precision_of(weights)
    start = {
        "model": str(weights),
        "precision": precision,
        "threads": threads,
        "draft": folder_of(draft) if draft else None,
        **peer.options,
    }
    interpreter = python() if peer.packages else Path(sys.executable)
    arm = PeerArm(f"{PREFIX}{plain}", interpreter, _WORKERS / peer.worker, start)
    arm.details = {
        "version": peer.version,
        "precision": precision,
        "weights": Path(weights).name,
        "threads": str(threads),
        **arm.details,
    }
    return arm
