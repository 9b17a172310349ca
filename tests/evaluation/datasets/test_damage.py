"""Whatever is wrong with a set, the error is of ours and names the file; what loads is sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from specrag.errors import InputError, SpecragError
from specrag.evaluation.datasets.catalog import load_dataset, load_documents
from tests.evaluation.datasets.samples import FILES, PACKINGS, write_beir, write_cranfield

T = TypeVar("T")
_ABSENT: Any = object()
_WRONG: tuple[Any, ...] = (
    _ABSENT, None, 3, 1.5, True, "x", "", " ", "\ud800", "[3", [], {}, [[]], [3], [None], {"a": 1},
)  # fmt: skip
_TABLES = ("popqa table", "table")
_FOLDERS = {
    "beir": (write_beir, ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")),
    "cranfield": (write_cranfield, ("cran.all.1400", "cran.qry", "cranqrel")),
}


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = value if isinstance(value, dict) else range(len(value)) if type(value) is list else ()
    for key in keys:
        yield from nodes(value[key], (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    whole = here = json.loads(json.dumps(value))
    for key in path[:-1]:
        here = here[key]
    if new is _ABSENT:
        del here[path[-1]]
    else:
        here[path[-1]] = new
    return whole


def damaged(text: str) -> Iterator[tuple[str, str]]:
    """Yields every node of a sample replaced by every wrong value, and what was done."""
    lines = text.splitlines()
    is_lines = lines[0].startswith("{") and lines[0].endswith("}") and '"data"' not in lines[0]
    is_lines = is_lines and "CONTEXTS" not in lines[0]
    value = [json.loads(line) for line in lines] if is_lines else json.loads(text)
    for path in nodes(value):
        for new in _WRONG:
            if path or new is not _ABSENT:
                made = changed(value, path, new)
                if is_lines and isinstance(made, list):
                    yield "\n".join(json.dumps(row) for row in made), f"{path} is {new!r}"
                else:
                    yield json.dumps(made), f"{path} is {new!r}"


def outcome(read: Callable[[], T]) -> T | str:
    """Returns what was read, or the message of an error of ours; others are not caught."""
    try:
        return read()
    except SpecragError as error:
        return str(error)


def check(source: Path, what: object, name: str = "auto") -> None:
    """Loads a set: either an error that names a file of it, or a set without a flaw."""
    found = outcome(lambda: load_dataset(str(source), name))
    if isinstance(found, str):
        assert str(source) in found, what
        return
    ids = {document.id for document in found.documents}
    assert len(ids) == len(found.documents), what
    assert all(document.text.strip() for document in found.documents), what
    for item in found.items:
        assert item.question.strip(), what
        assert item.id.strip(), what
        assert set(item.documents) <= ids, what
        assert len(set(item.documents)) == len(item.documents), what
        assert all(answer.strip() for answer in item.answers), what
        assert all(turn.strip() for turn in item.turns), what
        json.dumps([item.id, item.question, *item.answers], ensure_ascii=False).encode()
    json.dumps([d.id + d.text for d in found.documents], ensure_ascii=False).encode()


@pytest.mark.parametrize("name", [name for name in FILES if name not in _TABLES])
def test_a_wrong_value_anywhere_is_named_or_harmless(tmp_path: Path, name: str) -> None:
    told_as, text = FILES[name]
    source = tmp_path / "set"
    for content, what in damaged(text):
        source.write_text(content)
        check(source, what)
        check(source, what, told_as)


@pytest.mark.parametrize("name", [name for name in FILES if name not in _TABLES])
def test_documents_of_a_damaged_set_are_refused_or_sound(tmp_path: Path, name: str) -> None:
    source = tmp_path / "set"
    for content, what in damaged(FILES[name][1]):
        source.write_text(content)
        documents = outcome(lambda: load_documents(str(source)))
        if isinstance(documents, str):
            assert str(source) in documents, what
        else:
            assert documents, what
            assert all(document.text.strip() for document in documents), what


@pytest.mark.parametrize("name", FILES)
def test_a_set_cut_off_anywhere_is_refused_or_sound(tmp_path: Path, name: str) -> None:
    data = FILES[name][1].encode()
    source = tmp_path / "set"
    for end in range(0, len(data), 3):
        source.write_bytes(data[:end])
        check(source, end)


@pytest.mark.parametrize("name", [name for name, (_, text) in FILES.items() if text[0] in "{["])
def test_json_that_is_cut_off_names_its_line(tmp_path: Path, name: str) -> None:
    source = tmp_path / "set"
    text = FILES[name][1].rstrip()
    source.write_text(text[:-3])
    with pytest.raises(InputError, match=r"line \d+ ") as caught:
        load_dataset(str(source))
    assert str(source) in str(caught.value)


@pytest.mark.parametrize("packing", [".gz", ".xz"])
@pytest.mark.parametrize("name", ["nq", "popqa"])
def test_a_flipped_byte_of_an_archive_is_refused_or_harmless(
    tmp_path: Path, name: str, packing: str
) -> None:
    packed = PACKINGS[packing](FILES[name][1].encode())
    source = tmp_path / "set"
    for place in range(len(packed)):
        data = bytearray(packed)
        data[place] ^= 0x55
        source.write_bytes(data)
        check(source, place)


@pytest.mark.parametrize("folder", _FOLDERS)
def test_a_damaged_folder_is_refused_or_sound(tmp_path: Path, folder: str) -> None:
    write, names = _FOLDERS[folder]
    source = write(tmp_path / "set")
    for name in names:
        whole = (source / name).read_bytes()
        for place in range(len(whole)):
            for data in (whole[:place], whole[:place] + b"x" + whole[place + 1 :]):
                (source / name).write_bytes(data)
                check(source, (name, place, data))
        (source / name).write_bytes(whole)
