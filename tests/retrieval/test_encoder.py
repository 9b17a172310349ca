from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from specrag.errors import ConfigError, ModelError
from specrag.retrieval.encoder import Encoder, HashingEncoder, SentenceTransformerEncoder

QUERY = "How does the gate decide?"
NEAR = "The gate decides by the entropy of the draft."
FAR = "Bake the bread for forty minutes."

_DIGEST = """
import hashlib
from specrag.retrieval.encoder import HashingEncoder
vectors = HashingEncoder().encode_documents(["The gate decides.", "中文", ""])
print(hashlib.sha256(vectors.tobytes()).hexdigest())
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout.strip()


def test_hashing_does_not_depend_on_the_process() -> None:
    root = str(Path(__file__).parents[2])
    digests = {run(_DIGEST, PYTHONHASHSEED=seed, PYTHONPATH=root) for seed in ("1", "2")}
    assert len(digests) == 1


def test_hashing_finds_shared_words() -> None:
    encoder = HashingEncoder()
    near, far = encoder.encode_documents([NEAR, FAR]) @ encoder.encode_queries([QUERY])[0]
    assert near > far


@pytest.mark.parametrize("text", ["", "   ", "\0"])
def test_hashing_gives_blank_texts_a_vector(text: str) -> None:
    assert np.linalg.norm(HashingEncoder().encode_documents([text])) == 1.0


def test_hashing_ignores_what_exceeds_its_limit() -> None:
    encoder = HashingEncoder(max_tokens=2)
    long, short = encoder.encode_documents(["one two three", "one two"])
    np.testing.assert_array_equal(long, short)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0)])
def test_hashing_refuses_unusable_sizes(sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="must be at least 1, got"):
        HashingEncoder(*sizes)


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    HashingEncoder().encode_documents(["a"])
    assert capsys.readouterr().err == ""
    HashingEncoder().encode_documents(["a"], progress=True)
    shown = capsys.readouterr()
    assert "encoding" in shown.err
    assert shown.out == ""


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A folder with configuration and tokenizer but no weights that could be loaded."""
    tokenizer = Tokenizer(WordLevel({"one": 0, "two": 1, "query": 2, ":": 3, "?": 4}, "?"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    prompts = '{"prompts": {"query": "query:", "document": ""}}'
    (tmp_path / "config_sentence_transformers.json").write_text(prompts)
    return tmp_path


def test_tokens_are_counted_without_the_limits_of_the_tokenizer_file(model_folder: Path) -> None:
    encoder = SentenceTransformerEncoder(model_folder)
    assert encoder.count_tokens(["one", "", "one two one two one", "other"]) == [1, 0, 5, 1]


def test_prompts_take_room_from_the_text(model_folder: Path) -> None:
    assert SentenceTransformerEncoder(model_folder).max_tokens == 16 - 2


@pytest.mark.parametrize(
    ("path_or_name", "name", "expected"),
    [(".", None, "model"), ("./", None, "model"), (".", "MiniLM", "MiniLM"), ("a/b", None, "a/b")],
)
def test_the_name_is_given_or_that_of_the_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path_or_name: str,
    name: str | None,
    expected: str,
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    assert SentenceTransformerEncoder(path_or_name, name=name).name == expected


def test_an_unusable_batch_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        SentenceTransformerEncoder("model", batch_size=0)


@pytest.mark.embedded
def test_a_folder_without_weights_is_reported(model_folder: Path) -> None:
    # Marked because it imports the library, which takes seconds.
    with pytest.raises(ModelError, match="cannot load the encoder") as caught:
        SentenceTransformerEncoder(model_folder).encode_queries(["one"])
    assert caught.value.hint


@pytest.fixture(scope="module")
def embedded(embedded_encoder_path: Path) -> Encoder:
    return SentenceTransformerEncoder(embedded_encoder_path, name="all-MiniLM-L6-v2", batch_size=2)


@pytest.mark.embedded
def test_the_embedded_encoder_tells_its_sizes_without_torch(embedded_encoder_path: Path) -> None:
    code = (
        "import sys\n"
        "from specrag.retrieval.encoder import SentenceTransformerEncoder\n"
        f"encoder = SentenceTransformerEncoder({str(embedded_encoder_path)!r})\n"
        "print(encoder.dimension, encoder.max_tokens, encoder.count_tokens(['the gate decides']))\n"
        "assert encoder.fingerprint and 'torch' not in sys.modules"
    )
    assert run(code, PYTHONPATH=str(Path(__file__).parents[2])) == "384 254 [3]"


@pytest.mark.embedded
def test_the_embedded_encoder_understands_what_shares_no_words(embedded: Encoder) -> None:
    texts = ["The cat sleeps on the sofa.", "Shares fell sharply on Monday.", FAR]
    query = embedded.encode_queries(["Where is the kitten napping?"])[0]
    assert np.argmax(embedded.encode_documents(texts) @ query) == 0


@pytest.mark.embedded
def test_texts_are_encoded_in_the_order_given(embedded: Encoder) -> None:
    texts = ["short", f"{NEAR} {FAR}", NEAR, "a", f"{FAR} {NEAR} {QUERY}"]
    together = embedded.encode_documents(texts)
    alone = np.concatenate([embedded.encode_documents([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.embedded
def test_max_tokens_is_the_longest_text_encoded_in_full(embedded: Encoder) -> None:
    words = ["gate"] * embedded.max_tokens
    assert embedded.count_tokens([" ".join(words)]) == [embedded.max_tokens]
    changed_end = " ".join([*words[:-1], "bread"])
    beyond = " ".join([*words, "bread"])
    full, changed, cut = embedded.encode_documents([" ".join(words), changed_end, beyond])
    np.testing.assert_allclose(full, cut, atol=1e-5)
    assert np.abs(full - changed).max() > 1e-4


@pytest.mark.embedded
def test_loading_and_encoding_are_silent(
    embedded_encoder_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    SentenceTransformerEncoder(embedded_encoder_path).encode_documents([NEAR])
    assert capfd.readouterr() == ("", "")


@pytest.mark.embedded
def test_several_threads_may_encode(embedded: Encoder) -> None:
    expected = embedded.encode_queries([QUERY])
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda: results.append(embedded.encode_queries([QUERY])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_allclose(result, expected, atol=1e-6)
