"""Encoders of the plain kind: sentence-transformers itself is the oracle."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrag.retrieval.encoder import SentenceTransformerEncoder
from specrag.retrieval.encoder_folder import EncoderFolder

TEXTS = [
    "The gate decides by the entropy of the draft.",
    "",
    "a",
    "中文 and émigré words, e.g. 3.14!",
    "gate " * 400,
    "Speculative decoding drafts several tokens and verifies them in one pass.",
]


def changed(source: Path, target: Path, name: str, **values: Any) -> Path:
    """A copy of a model folder, one of whose JSON files says something else."""
    shutil.copytree(source, target)
    path = target / name
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | values))
    return target


def oracle(folder: Path, texts: list[str]) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(texts, normalize_embeddings=True, show_progress_bar=False))


@pytest.mark.embedded
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_sentence_transformers(
    pooling: str, embedded_encoder_path: Path, tmp_path: Path
) -> None:
    folder = changed(
        embedded_encoder_path,
        tmp_path / "model",
        "1_Pooling/config.json",
        pooling_mode_mean_tokens=pooling == "mean",
        pooling_mode_cls_token=pooling == "cls",
    )
    assert EncoderFolder(folder).pooling == pooling
    encoder = SentenceTransformerEncoder(folder, batch_size=4, device="cpu")
    for found in (encoder.encode_documents(TEXTS), encoder.encode_queries(TEXTS)):
        np.testing.assert_allclose(found, oracle(folder, TEXTS), atol=2e-6)


@pytest.mark.embedded
def test_the_library_is_not_imported_for_it(embedded_encoder_path: Path) -> None:
    code = (
        "import sys\n"
        "from specrag.retrieval.encoder import SentenceTransformerEncoder\n"
        f"encoder = SentenceTransformerEncoder({str(embedded_encoder_path)!r})\n"
        "encoder.warm_up()\n"
        "assert encoder.encode_queries(['one']).shape == (1, 384)\n"
        "print('sentence_transformers' in sys.modules, 'sklearn' in sys.modules)\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root},
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),  # two poolings at once
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True},
        ),
        ("config_sentence_transformers.json", {"prompts": {"query": "query: "}}),
        ("config_sentence_transformers.json", {"truncate_dim": 64}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config.json", {"auto_map": {"AutoModel": "theirs.Model"}}),
    ],
)
def test_all_other_kinds_are_left_to_the_library(
    name: str, values: dict[str, Any], embedded_encoder_path: Path, tmp_path: Path
) -> None:
    folder = changed(embedded_encoder_path, tmp_path / "model", name, **values)
    assert EncoderFolder(embedded_encoder_path).pooling == "mean"
    assert EncoderFolder(folder).pooling == ""
