"""What figures were measured on: the machine, the versions, the state of the source."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

_PACKAGES = (
    "specrag", "torch", "transformers", "tokenizers", "faiss-cpu", "sentence-transformers", "numpy",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """Returns what the figures were measured on."""
    return {
        "processor": _processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def versions() -> dict[str, str]:
    """Returns the versions of the packages that decide what comes out."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "source"  # run from a checkout that is not installed
    return found


def commit() -> str | None:
    """Returns the commit that this source was checked out at, None where there is none.

    A ``+`` behind it says that files had been changed since.
    """
    here = Path(__file__).resolve().parent
    named = _git(here, "rev-parse", "HEAD")
    # An environment inside somebody else's repository must not report that one's commit.
    if not named or not _git(here, "ls-files", "--", Path(__file__).name):
        return None
    return f"{named}+" if _git(here, "status", "--porcelain", "-uno") else named


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a device file
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
