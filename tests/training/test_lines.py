from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.training.lines import is_json_lines, read_lines, read_objects

TEXT = '{"a": 1}\n\n{"a": "\u2028x"}\r\n'.encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gz", "xz"])
def test_packed_files_read_as_plain_ones(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(pack(b"\xef\xbb\xbf" + TEXT))
    assert list(read_objects(path)) == [
        (f"line 1 of {str(path)!r}", {"a": 1}),
        (f"line 3 of {str(path)!r}", {"a": "\u2028x"}),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a": 1}\n{"a": ', "line 2 of .* is not JSON"),
        (b'{"a": 1}\n[1]\n', "line 2 of .* is no JSON object"),
        (b'{"a": "\\ud800"}\n', "line 1 of .* is not JSON"),
        (b"[" * 100_000 + b"\n", "line 1 of .* is not JSON"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "line 2 of .* is not UTF-8"),
        (gzip.compress(TEXT * 50)[:-9], "damaged archive"),
        (b"\x1f\x8b" + b"x" * 60, "damaged archive"),
        (lzma.compress(TEXT * 50)[:-20], "damaged archive"),
        (b"\xfd7zXZ\x00" + b"x" * 60, "damaged archive"),
    ],
)
def test_what_is_damaged_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(data)
    with pytest.raises(InputError, match=said) as caught:
        list(read_objects(path))
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_or_a_folder_is_an_error_of_the_user(tmp_path: Path) -> None:
    for path in (tmp_path / "no.txt", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            list(read_lines(path))


def test_json_lines_are_told_by_their_name() -> None:
    assert all(is_json_lines(Path(name)) for name in ("a.jsonl", "a.jsonl.xz", "a.b.jsonl.gz"))
    assert not any(is_json_lines(Path(name)) for name in ("a.txt", "a.txt.xz", "jsonl", "a.xz"))
