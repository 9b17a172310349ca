from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.retrieval.builder_lock import builder_lock

_HOLD = """
import sys, pathlib
from specrag.retrieval.builder_lock import builder_lock
with builder_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_builder_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another process is building"), builder_lock(tmp_path):
            pass
        other.kill()
        other.wait()
        with builder_lock(tmp_path):
            assert (tmp_path / ".lock").exists()


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), builder_lock(tmp_path):
        raise ZeroDivisionError
    with builder_lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    with builder_lock(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_a_file_in_the_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"), builder_lock(tmp_path / "file"):
        pass
