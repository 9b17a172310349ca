"""Peers by name; those of transformers run for real on a tiny model."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

from specrag.decoding.drafter import named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.errors import ConfigError, MissingExtraError
from specrag.evaluation.peers import engines
from specrag.evaluation.peers.catalog import expand, open_peer
from specrag.evaluation.peers.engines import PEERS
from specrag.evaluation.speed.arm import Sample
from specrag.evaluation.speed.engine_arm import EngineArm, engine_arms
from specrag.models.tiny import tiny_target, tiny_tokenizer

TRANSFORMERS = [name for name in PEERS if name.startswith("transformers")]
# Their weights are not the values that our engine decodes with, or not computed with as floats.
QUANTISED = ("llama.cpp", "llama.cpp-ngram", "openvino", "openvino-prompt-lookup")
TARGET = "smollm2-135m-instruct"


def test_all_means_what_is_installed() -> None:
    assert set(TRANSFORMERS) <= set(expand(["all"], "smollm2-135m-instruct"))
    assert expand(["openvino", "peer:openvino"], "smollm2-135m-instruct") == ["openvino"]
    with pytest.raises(ConfigError, match=r"did you mean 'llama\.cpp'"):
        expand(["all", "lama.cpp"], "smollm2-135m-instruct")


@pytest.mark.usefixtures("isolated_home")
def test_a_peer_that_is_not_installed_says_how() -> None:
    assert expand(["all"], "smollm2-135m-instruct") == TRANSFORMERS
    with pytest.raises(MissingExtraError, match="not installed") as raised:
        open_peer("llama.cpp", "x.gguf", threads=1)
    assert raised.value.hint == "specrag peers install llama.cpp"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EngineArm]:
    """A saved model of two layers, and plain decoding of it by our engine."""
    folder = tmp_path_factory.mktemp("tiny")
    target, tokenizer = tiny_target(3), tiny_tokenizer()
    target.model.save_pretrained(folder)
    tokenizer.backend.save_pretrained(folder)
    plain, _ = engine_arms(SpeculativeGenerator(target, tokenizer, named_drafter("none")), {})
    return folder, plain


PROMPTS = ([5, 6, 7, 8, 5, 6, 7], list(range(4, 30)), [42, 43])
"""Left to itself, the answer to the last one ends after some tokens."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The worker of transformers in this process: to load torch in each takes seconds."""
    monkeypatch.syspath_prepend(str(Path(engines.__file__).parent / "workers"))
    logging = transformers.utils.logging
    told = logging.get_verbosity()
    yield importlib.import_module("transformers_worker")
    logging.set_verbosity(told)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_peers_of_transformers_decode_the_same_tokens(
    name: str, tiny: tuple[Path, EngineArm], worker: Any
) -> None:
    folder, plain = tiny
    decode, details = worker._open({"model": str(folder), "threads": 1, **PEERS[name].options})
    for prompt in PROMPTS:
        found = Sample(**decode(prompt, 24, 24))
        assert list(found.token_ids) == list(plain.decode(prompt, 24, 24).token_ids)
        check_times(found, 24)
        ended = decode(prompt, 24, 0)["token_ids"]
        assert ended == list(plain.decode(prompt, 24).token_ids)
        assert decode(prompt, 1, 1)["token_ids"] == ended[:1]
    assert 1 < len(ended) < 24, "a fixed length must be seen to go over an end"
    assert details["settings"]


def test_a_draft_model_assists(tiny: tuple[Path, EngineArm], worker: Any) -> None:
    """A draft model that is the target itself is right wherever it is sure enough to draft."""
    folder, plain = tiny
    start = {"model": str(folder), "draft": str(folder), "threads": 1, "assisted": True}
    decode, details = worker._open(start)
    found = Sample(**decode(PROMPTS[0], 24, 24))
    assert list(found.token_ids) == list(plain.decode(PROMPTS[0], 24, 24).token_ids)
    assert (found.mean_acceptance_length or 0) > 2
    assert details["settings"] == f"assistant {folder}"


def test_a_peer_runs_in_a_process_of_its_own(tiny: tuple[Path, EngineArm]) -> None:
    folder, plain = tiny
    arm = open_peer("peer:transformers-assisted", str(folder), threads=1)
    try:
        found = arm.decode(PROMPTS[0], 24, 24)
        assert found.token_ids == plain.decode(PROMPTS[0], 24, 24).token_ids
        check_times(found, 24)
        assert (arm.peak_memory_mb() or 100) > 50
    finally:
        arm.close()
    assert arm.name == "peer:transformers-assisted"
    assert arm.details == {
        "version": transformers.__version__,
        "precision": "float32",
        "weights": folder.name,
        "threads": "1",
        "settings": "assistant: the first 1 layers of 2, not trained for that",
    }


def check_times(found: Sample, length: int) -> None:
    assert found.prefill_ms is not None
    assert sum(found.step_tokens) == length - 1
    assert found.decode_ms == pytest.approx(sum(found.step_ms))
    assert found.mean_acceptance_length == pytest.approx((length - 1) / len(found.step_ms))


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.parametrize("name", list(PEERS))
def test_every_peer_decodes_the_embedded_target(name: str) -> None:
    """What it says in 32 bits is what our engine says; in any case it keeps the length."""
    if PEERS[name].version is None:
        pytest.skip(f"specrag peers install {name}")
    generator = SpeculativeGenerator.from_pretrained(TARGET, drafter="none", dtype="float32")
    plain, _ = engine_arms(generator, {})
    prompt = generator.prompt_ids([{"role": "user", "content": "Count: one, two, three, one, two"}])
    arm = open_peer(name, TARGET, threads=1)
    try:
        found = arm.decode(prompt, 24, 24)
        short = arm.decode(prompt, 1, 1)
    finally:
        arm.close()
    assert len(found.token_ids) == 24
    assert found.prefill_ms is not None
    assert found.decode_ms > 10, "no engine decodes 23 tokens in so little time"
    assert len(short.token_ids) == 1
    assert (found.mean_acceptance_length or 0) >= 1
    if found.step_ms:
        check_times(found, 24)
    if name not in QUANTISED:
        assert found.token_ids == plain.decode(prompt, 24, 24).token_ids


def test_all_leaves_out_engines_that_cannot_read_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specrag.evaluation.peers.engines.installed", lambda _: "1")
    in_folders = [*TRANSFORMERS, "economize", "flashspec"]
    assert expand(["all"], str(tmp_path)) == in_folders
    assert set(expand(["all"], "model.gguf")) == set(PEERS) - set(in_folders)
    assert expand(["all"], "smollm2-135m-instruct") == list(PEERS)
    # One that was named is never dropped silently: opening it says what is wrong.
    assert expand(["llama.cpp"], str(tmp_path)) == ["llama.cpp"]
