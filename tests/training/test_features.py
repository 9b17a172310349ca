from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.errors import ConfigError
from specrag.models.kv_cache import KVCache
from specrag.models.target import ModelOutput, TargetModel
from specrag.models.tiny import tiny_target
from specrag.training import features
from specrag.training.features import FeatureStore
from tests.training.kit import LAYERS, target, texts


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    store = FeatureStore(tmp_path_factory.mktemp("whole"), target(), texts(), LAYERS)
    store.fill()
    return store


def same(store: FeatureStore, other: FeatureStore) -> bool:
    return all(torch.equal(store.of(place), other.of(place)) for place in range(len(texts())))


def test_they_are_those_of_a_text_alone(whole: FeatureStore) -> None:
    for place, text in enumerate(texts()):
        ids = tuple(text.token_ids)
        output = target().prefill([ids], target().new_cache(1, len(ids)), 1, LAYERS)
        alone = torch.stack([output.features[layer][0] for layer in LAYERS], dim=1)
        found = whole.of(place)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), alone, rtol=2**-7, atol=1e-3)


def test_what_was_stopped_goes_on(
    whole: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_SORTED", 5)
    monkeypatch.setattr(features, "_BATCH_TOKENS", 40)
    real = target().prefill
    fed: list[int] = []

    def failing(prompts: Sequence[Sequence[int]], *rest: Any) -> ModelOutput:
        fed.append(len(prompts))
        if len(fed) == 6:
            raise RuntimeError("the power went")
        return real(prompts, *rest)

    store = FeatureStore(tmp_path, target(), texts(), LAYERS)
    assert store.num_done == 0
    monkeypatch.setattr(target(), "prefill", failing)
    with pytest.raises(RuntimeError, match="the power went"):
        store.fill()
    again = FeatureStore(tmp_path, target(), texts(), LAYERS)
    done = again.num_done
    assert 0 < done < len(texts())

    fed[:] = [0] * 6
    again.fill(progress=True)
    assert again.num_done == len(texts())
    assert sum(fed) == len(texts()) - done  # what was there is not computed again
    for place in range(len(texts())):
        found, expected = again.of(place).float(), whole.of(place).float()
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-3)


def test_a_stopped_store_says_so_whatever_was_lost(tmp_path: Path, whole: FeatureStore) -> None:
    """Data and the note of how far it reaches are two files: either may be gone or half there."""
    store = FeatureStore(tmp_path, target(), texts(), LAYERS)
    store.fill()
    for name, content in (("features.bin", None), ("features.bin", b"ab"), ("texts.bin", b"abc")):
        path = tmp_path / name
        del store
        path.unlink() if content is None else path.write_bytes(content)
        store = FeatureStore(tmp_path, target(), texts(), LAYERS)
        assert store.num_done == 0, name
        store.fill()
        assert same(store, whole), name


def test_a_store_serves_fewer_layers_and_other_orders(whole: FeatureStore) -> None:
    fewer = FeatureStore(whole.folder, target(), texts(), (-1, 0))
    assert fewer.num_done == len(texts())
    for place in (0, 5):
        assert torch.equal(fewer.of(place), whole.of(place)[:, [2, 0]])


def test_a_corpus_may_grow_and_change_its_order(
    whole: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store is asked for a part, then for all, then for all in another order."""
    first = FeatureStore(tmp_path, target(), texts()[3:7], LAYERS)
    first.fill()
    assert first.num_done == 4
    grown = FeatureStore(tmp_path, target(), [*texts(), texts()[0]], LAYERS)
    assert grown.num_done == 4
    assert grown.identity != first.identity
    grown.fill()
    tokens = sum(len(text.token_ids) for text in texts())  # a text that comes twice is there once
    assert (tmp_path / "features.bin").stat().st_size == 2 * tokens * grown.of(0)[0].numel()
    turned = FeatureStore(tmp_path, target(), texts()[::-1], LAYERS)
    monkeypatch.setattr(target(), "prefill", None)  # nothing is left to compute
    turned.fill()
    for place in range(len(texts())):
        found, expected = turned.of(place).float(), whole.of(len(texts()) - 1 - place).float()
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("lost", [1, 7, 24, 25])
def test_a_damaged_index_loses_whole_texts_only(
    tmp_path: Path, whole: FeatureStore, lost: int
) -> None:
    FeatureStore(tmp_path, target(), texts(), LAYERS).fill()
    path = tmp_path / "texts.bin"
    path.write_bytes(path.read_bytes()[:-lost])
    store = FeatureStore(tmp_path, target(), texts(), LAYERS)
    assert store.num_done == len(texts()) - -(-lost // 24)
    store.fill()
    for place in range(len(texts())):
        found, expected = store.of(place).float(), whole.of(place).float()
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-3)


def test_two_processes_fill_one_store(tmp_path: Path, whole: FeatureStore) -> None:
    """Both want texts that the other one wants, too, and neither may write over the other."""
    halves = [texts()[:6], texts()[3:]]
    children = []
    for corpus in halves:
        child = os.fork()
        if not child:
            status = 1
            try:
                FeatureStore(tmp_path, target(), corpus, LAYERS).fill()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    store = FeatureStore(tmp_path, target(), texts(), LAYERS)
    assert store.num_done == len(texts())
    for place in range(len(texts())):
        found, expected = store.of(place).float(), whole.of(place).float()
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-3)


def test_opening_a_store_changes_nothing(tmp_path: Path) -> None:
    """Somebody may be filling it: what lies behind the last named text is theirs."""
    FeatureStore(tmp_path, target(), texts()[:4], LAYERS).fill()
    for name in ("features.bin", "texts.bin"):
        with (tmp_path / name).open("ab") as file:
            file.write(b"half a te")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    store = FeatureStore(tmp_path, target(), texts()[:4], LAYERS)
    assert store.num_done == 4
    store.fill()
    store.of(3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_others_are_refused(whole: FeatureStore) -> None:
    cases: list[tuple[TargetModel, tuple[int, ...], str]] = [
        (tiny_target(9, num_layers=7), LAYERS, "other target: "),
        (target(), (0, 1), r"other layers: \[0, 2, -1\], not \[0, 1\]"),
    ]
    for model, layers, message in cases:
        with pytest.raises(ConfigError, match=message) as caught:
            FeatureStore(whole.folder, model, texts(), layers)
        assert caught.value.hint == "name another folder, or remove this one"


def test_a_filled_store_computes_nothing(
    whole: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = FeatureStore(whole.folder, target(), texts(), LAYERS)
    monkeypatch.setattr(target(), "prefill", None)
    again.fill()


def test_batches_are_bounded_with_their_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_BATCH_TOKENS", 50)
    sizes: list[int] = []
    real = target().prefill

    def noting(prompts: Sequence[Sequence[int]], cache: KVCache, *rest: Any) -> ModelOutput:
        sizes.append(len(prompts) * max(map(len, prompts)))
        return real(prompts, cache, *rest)

    store = FeatureStore(tmp_path, target(), texts(), LAYERS)
    monkeypatch.setattr(target(), "prefill", noting)
    store.fill()
    assert max(sizes) <= 50
    assert len(sizes) < len(texts())
