from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.retrieval.sources import files
from specrag.retrieval.sources.files import open_regular, read_steady
from specrag.retrieval.sources.source import UnreadableError
from tests.retrieval.sources.samples import put


@pytest.mark.parametrize(("limit", "fits"), [(9, True), (8, False)])
def test_a_file_is_read_up_to_the_bound(tmp_path: Path, limit: int, fits: bool) -> None:
    path = put(tmp_path, "a.txt", "some text")
    if fits:
        data, facts = read_steady(path, limit)
        assert (data, facts.st_size) == (b"some text", 9)
    else:
        with pytest.raises(UnreadableError, match="is larger than 8 bytes; split it"):
            read_steady(path, limit)


def changing(path: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the file grow during its first few reads."""
    left = times

    class Growing:
        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def __enter__(self) -> Growing:
            return self

        def __exit__(self, *args: object) -> None:
            self._file.close()  # type: ignore[attr-defined]

        def read(self, size: int) -> object:
            nonlocal left
            data = self._file.read(size)  # type: ignore[attr-defined]
            if left:
                left -= 1
                with path.open("ab") as other:
                    other.write(b" more")
            return data

    real: Callable[[Path], object] = files.open_regular
    monkeypatch.setattr(files, "open_regular", lambda path: Growing(real(path)))


def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a.txt", "text")
    changing(path, 1, monkeypatch)
    assert read_steady(path, 100)[0] == b"text more"


def test_a_file_that_changes_all_the_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "a.txt", "text")
    changing(path, 2, monkeypatch)
    with pytest.raises(UnreadableError, match="changed while it was read; run again"):
        read_steady(path, 100)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in [(tmp_path / "pipe", "a named pipe"), (tmp_path, "a folder")]:
        with pytest.raises(UnreadableError, match=f"is {kind}, not a file"):
            open_regular(path)
    with pytest.raises(UnreadableError, match="is a device, not a file"):
        open_regular(Path(os.devnull))


def test_kinds_of_files_have_names() -> None:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")
        assert files.kind_of((Path(folder) / "s").stat().st_mode) == "a socket"
    assert files.kind_of(Path(__file__).stat().st_mode) is None
    assert files.kind_of(0) == "a special file"
