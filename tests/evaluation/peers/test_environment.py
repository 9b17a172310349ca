"""The environment of the peers, made for real but filled from a wheel of the test."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.evaluation.peers.environment import folder, install, installed, python

OFFLINE = ("--no-index", "--quiet")


def wheel(place: Path, name: str, requires: str = "") -> str:
    path = place / f"{name}-1.5-py3-none-any.whl"
    info = f"{name}-1.5.dist-info"
    needed = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "import torch\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n{needed}"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return str(path)


@pytest.mark.usefixtures("isolated_home")
def test_it_sees_what_is_here_without_fetching_it(tmp_path: Path) -> None:
    """A package that needs numpy is installed without an index: numpy is there already."""
    assert installed("engine") is None
    install([wheel(tmp_path, "engine", "numpy>=1")], OFFLINE)
    assert installed("engine") == "1.5"
    code = "import importlib.metadata, importlib.util as u; assert u.find_spec('engine')\n"
    code += "print(importlib.metadata.version('torch'), importlib.metadata.version('numpy'))"
    done = subprocess.run([str(python()), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [importlib.metadata.version(name) for name in ("torch", "numpy")]
    assert not list(folder().rglob("site-packages/numpy")), "numpy was installed a second time"

    # A second one goes into the same environment; one that wants another numpy is refused.
    with pytest.raises(ConfigError, match="cannot install .*: pip ended with status 1"):
        install([wheel(tmp_path, "greedy", "numpy<1")], OFFLINE)
    assert (installed("engine"), installed("greedy")) == ("1.5", None)


@pytest.mark.usefixtures("isolated_home")
def test_an_environment_that_was_not_finished_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text('#!/bin/sh\nmkdir -p "$3/bin"; touch "$3/bin/python"; exit 1\n')
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(ConfigError, match="the environment cannot be made"):
        install(["engine"], OFFLINE)
    assert not folder().exists()
