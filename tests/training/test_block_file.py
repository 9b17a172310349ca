from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.training.block_file import BlockFile


def written(path: Path, count: int) -> bytes:
    data = b"".join(b'{"n":%d}\n' % number for number in range(count))
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("torn", [b"", b'{"n":', b'{"n":99}'])
@pytest.mark.parametrize(
    ("count", "total", "kept"),
    [(0, 10, 0), (3, 10, 0), (4, 10, 4), (9, 10, 8), (10, 10, 10), (12, 10, 12), (7, None, 4)],
)
def test_what_stays_is_whole_blocks_or_the_whole_file(
    count: int, total: int | None, kept: int, torn: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    data = written(path, count)
    path.write_bytes(data + torn)
    file = BlockFile(path, 4)
    assert file.resume(total) == kept
    assert [row["n"] for _, row in file.rows()] == list(range(kept))
    assert path.read_bytes() == b"".join(data.splitlines(keepends=True)[:kept])
    file.append([json.dumps({"n": "new"}, separators=(",", ":"))])
    assert path.read_bytes().endswith(b'{"n":"new"}\n')


def test_a_new_file_is_begun(tmp_path: Path) -> None:
    file = BlockFile(tmp_path / "a.jsonl", 4)
    assert file.resume(3) == 0
    assert list(file.rows()) == []
    file.append(["{}"])
    assert len(list(file.rows())) == 1


def test_what_cannot_be_used_is_an_error_of_the_user(tmp_path: Path) -> None:
    file = BlockFile(tmp_path, 4)
    with pytest.raises(InputError, match="cannot go on with"):
        file.resume()
    with pytest.raises(InputError, match="cannot write"):
        file.append(["{}"])
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n\xff\n")
    with pytest.raises(InputError, match="line 2 of"):
        list(BlockFile(path, 1).rows())
