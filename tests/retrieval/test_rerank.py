from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from specrag.errors import ConfigError, ModelError
from specrag.retrieval.document import Passage, ScoredPassage
from specrag.retrieval.rerank import CrossEncoderReranker, WordOverlapReranker
from tests.retrieval.tiny_cross_encoder import tiny_cross_encoder

QUERY = "how does the gate decide"
TEXTS = ["the gate decides by entropy", "bake bread", "the draft"]


def passages(texts: list[str]) -> list[Passage]:
    return [Passage(number, "a", text, 0, len(text)) for number, text in enumerate(texts)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_cross_encoder(tmp_path_factory.mktemp("model") / "tiny")


def test_word_overlap_is_the_share_of_words_that_a_passage_holds() -> None:
    texts = ["The gate opens.", "A gate. How do I decide?", "", "bread"]
    found = [ScoredPassage(passage, 0.0) for passage in passages(texts)]
    ranked = WordOverlapReranker().rerank("Does the gate decide?", found, 3)
    assert [(one.passage.id, one.score) for one in ranked] == [(1, 1.0), (0, 0.5), (2, 0.0)]
    assert WordOverlapReranker().score("What is it?", passages(["a"])) == [0.0]


def test_scores_are_those_of_the_model(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    with torch.inference_mode():
        for text in TEXTS:
            logit = model(**tokenizer(QUERY, text, return_tensors="pt")).logits[0, 0]
            expected.append(float(logit.sigmoid()))
    scores = CrossEncoderReranker(folder).score(QUERY, passages(TEXTS))
    assert scores == pytest.approx(expected, abs=1e-5)


class Counting:
    """Gives every pair the next number, as rounding might."""

    def predict(self, pairs: list[tuple[str, str]], **settings: object) -> np.ndarray:
        return np.arange(len(pairs), dtype=np.float32)


def test_equal_texts_have_equal_scores_whatever_the_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = CrossEncoderReranker(folder)
    monkeypatch.setitem(vars(reranker), "_model", Counting())
    assert reranker.score(QUERY, passages(["a", "b", "a", "c", "b"])) == [0, 1, 0, 2, 1]


def test_a_long_passage_is_cut_not_refused(folder: Path) -> None:
    reranker = CrossEncoderReranker(folder)
    long, longer = reranker.score(QUERY, passages(["gate " * 80, "gate " * 80 + "bread"]))
    assert long == pytest.approx(longer, abs=1e-6)


def test_the_name_is_given_or_that_of_the_folder(folder: Path) -> None:
    assert CrossEncoderReranker(folder).name == "tiny"
    assert CrossEncoderReranker(folder, name="mine").name == "mine"
    assert CrossEncoderReranker("owner/model").name == "owner/model"


def test_other_weights_have_another_fingerprint(folder: Path, tmp_path: Path) -> None:
    other = tiny_cross_encoder(tmp_path / "other", seed=1)
    assert CrossEncoderReranker(folder).fingerprint != CrossEncoderReranker(other).fingerprint


def test_running_is_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    CrossEncoderReranker(folder).score(QUERY, passages(TEXTS))
    assert capfd.readouterr() == ("", "")


def test_an_unusable_batch_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        CrossEncoderReranker("model", batch_size=0)


def test_a_folder_without_a_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot use the reranker") as caught:
        _ = CrossEncoderReranker(tmp_path).fingerprint
    assert "cross-encoder" in (caught.value.hint or "")


def test_a_name_that_cannot_be_fetched_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Path:
        raise OSError(f"offline: {name}")

    monkeypatch.setattr("specrag.retrieval.encoder_folder._fetch", fail)
    with pytest.raises(ModelError, match="cannot use the reranker 'owner/model'"):
        CrossEncoderReranker("owner/model").score(QUERY, passages(TEXTS))


def test_an_encoder_is_not_taken_for_a_cross_encoder(folder: Path, tmp_path: Path) -> None:
    # The library would only warn, and rank by a head of random weights.
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    with pytest.raises(ModelError, match="is no cross-encoder but BertModel"):
        CrossEncoderReranker(tmp_path).warm_up()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="is no cross-encoder but a model of unknown kind"):
        CrossEncoderReranker(tmp_path).warm_up()
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(ModelError, match="is no cross-encoder but SentenceTransformer"):
        CrossEncoderReranker(tmp_path).warm_up()


def test_a_model_with_several_scores_is_refused(tmp_path: Path) -> None:
    three = tiny_cross_encoder(tmp_path, num_labels=3)
    with pytest.raises(ModelError, match="gives 3 scores for a pair, not one"):
        CrossEncoderReranker(three).warm_up()


def test_a_folder_without_weights_is_reported(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ModelError, match="cannot load the reranker"):
        CrossEncoderReranker(tmp_path).warm_up()


def test_scores_that_are_no_numbers_are_reported(tmp_path: Path) -> None:
    broken = tiny_cross_encoder(tmp_path)
    weights = load_file(broken / "model.safetensors")
    weights["classifier.bias"] = torch.tensor([float("nan")])
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="gives scores that are no numbers"):
        CrossEncoderReranker(broken).score(QUERY, passages(TEXTS))
