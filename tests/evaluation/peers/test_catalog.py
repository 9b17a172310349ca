"""Peers by name; those of transformers run for real on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from specrag.decoding.generator import SpeculativeGenerator
from specrag.errors import ConfigError, MissingExtraError
from specrag.evaluation.peers.catalog import PEERS, checked, expand, open_peer
from specrag.evaluation.peers.weights import folder_of, gguf_of
from specrag.evaluation.speed.engine_arm import engine_arms

TRANSFORMERS = [name for name in PEERS if name.startswith("transformers")]


def test_names_are_checked_and_all_means_what_is_installed() -> None:
    assert checked("peer:llama.cpp") == "llama.cpp"
    with pytest.raises(ConfigError, match=r"did you mean 'llama\.cpp'"):
        checked("lama.cpp")
    assert set(TRANSFORMERS) <= set(expand(["all"]))
    assert expand(["openvino", "peer:openvino"]) == ["openvino"]


def test_workers_are_there() -> None:
    folder = Path(__file__).parents[3] / "specrag" / "evaluation" / "peers" / "workers"
    assert {peer.worker for peer in PEERS.values()} <= {path.name for path in folder.iterdir()}


def test_a_peer_that_is_not_installed_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(tmp_path))
    with pytest.raises(MissingExtraError, match="not installed") as raised:
        open_peer("llama.cpp", "x.gguf", threads=1)
    assert raised.value.hint == "specrag peers install llama.cpp"


def test_weights_that_an_engine_cannot_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a GGUF file"):
        gguf_of(str(tmp_path))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="reads no GGUF"):
        folder_of(str(tmp_path / "model.gguf"))


@pytest.mark.embedded
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_peers_of_transformers_decode_the_same_tokens(name: str) -> None:
    """The embedded target in 32 bits: the tokens are those of our plain decoding."""
    generator = SpeculativeGenerator.from_pretrained(drafter="none", dtype="float32")
    plain, _ = engine_arms(generator, {})
    prompt = generator.prompt_ids("The mill at the river. The mill at the")
    arm = open_peer(name, "smollm2-135m-instruct", threads=1)
    try:
        wanted = plain.decode(prompt, 12, 12)
        found = arm.decode(prompt, 12, 12)
    finally:
        arm.close()
    assert found.token_ids == wanted.token_ids
    assert 0 < sum(found.step_tokens) <= 11  # the first round may already bring more than one
    assert found.prefill_ms is not None
    assert found.decode_ms == pytest.approx(sum(found.step_ms))
    assert arm.details["precision"] == "float32"
