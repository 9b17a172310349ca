from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.fingerprints import document_hash, text_hash
from specrag.retrieval.indexed import IndexedFile
from specrag.retrieval.store import PassageStore

TEXT = "Alpha. βeta\r\n\0 gamma 🙂"
FIRST = Document(
    "a.md",
    TEXT,
    "/data/a.md",
    "A",
    {
        "language": "el",
        "author": "Ωmega",
        "year": 2020,
        "ratio": 0.5,
        "draft": True,
        "tags": ("a",),
    },
    "markdown",
    (0, 4),
)
FILE = IndexedFile("", "a.md", 10, 11, "hash")
SECOND = Document("b.md", "Second", "b.md")
PASSAGES = [
    Passage(0, "a.md", TEXT[:6], 0, 6, page=3, heading="A > B", line=2),
    Passage(1, "a.md", TEXT[7:], 7, len(TEXT)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A finished store with two documents."""
    path = tmp_path / "a folder, 100% odd?#" / "passages.sqlite"
    path.parent.mkdir()
    with PassageStore.create(path) as store:
        store.put(FIRST, PASSAGES, FILE)
        store.put(SECOND, [])
    return path


@pytest.fixture
def store(path: Path) -> Iterator[PassageStore]:
    with PassageStore.open(path) as store:
        yield store


def test_passages_come_back_as_they_were(store: PassageStore) -> None:
    assert store.get([0, 1]) == PASSAGES
    assert store.count() == 2


def test_passages_come_in_the_order_asked(store: PassageStore) -> None:
    assert [passage.id for passage in store.get([1, 0, 1])] == [1, 0, 1]
    assert store.get([]) == []


def test_documents_are_listed_in_the_order_put(store: PassageStore) -> None:
    first, second = store.documents()
    assert (first.number, first.id, first.source, first.title) == (1, "a.md", "/data/a.md", "A")
    assert (first.metadata, first.num_characters) == (dict(FIRST.metadata), len(TEXT))
    assert (first.first_passage, first.num_passages, first.tombstone) == (0, 2, (1, 0, 2))
    assert (second.id, second.title, second.metadata, second.num_passages) == ("b.md", None, {}, 0)
    assert first.hash == document_hash(FIRST)
    assert store.count_documents() == 2


def test_documents_come_back_whole(store: PassageStore) -> None:
    assert store.document("a.md") == FIRST
    assert store.document("b.md") == SECOND


def test_documents_are_found_by_id_and_by_source(store: PassageStore) -> None:
    def called(*names: str) -> list[str]:
        return [info.id for info in store.documents_called(names)]

    assert called("a.md") == called("/data/a.md") == called("a.md", "/data/a.md") == ["a.md"]
    assert called("b.md", "x", "a.md") == ["a.md", "b.md"]
    assert called() == called("x") == []


def test_files_know_their_documents(tmp_path: Path, store: PassageStore) -> None:
    assert store.files() == [(FILE, [1])]
    with PassageStore.create(tmp_path / "s") as several:
        for number in range(3):
            several.put(Document(f"{number}", "x", "s"), [], FILE if number != 1 else None)
        assert several.files() == [(FILE, [1, 3])]


def test_a_digest_tells_everything_of_a_document_apart() -> None:
    changes: list[dict[str, object]] = [
        {"id": "x"}, {"text": "x"}, {"source": "x"}, {"title": None}, {"metadata": {}},
        {"metadata": {**FIRST.metadata, "year": 2020.0}}, {"syntax": "rst"}, {"page_starts": (0,)},
    ]  # fmt: skip
    digests = {document_hash(replace(FIRST, **change)) for change in changes}  # type: ignore[arg-type]
    assert len(digests - {document_hash(FIRST)}) == len(changes)


def test_passages_are_found_by_their_text(store: PassageStore) -> None:
    wanted, unknown = text_hash(PASSAGES[1].text), text_hash("unknown")
    assert store.passages_with_texts([wanted, unknown]) == {wanted: 1}


def test_passages_of_documents_that_meet_a_condition(store: PassageStore) -> None:
    assert store.passage_ids("d.id = ?", ["a.md"]).tolist() == [0, 1]
    assert store.passage_ids("d.id = ?", ["b.md"]).tolist() == []
    assert store.passage_ids("1", []).tolist() == [0, 1]


def test_passages_are_read_in_order_from_anywhere(tmp_path: Path) -> None:
    with PassageStore.create(tmp_path / "many.sqlite") as store:
        passages = [Passage(n, "a", "x", n, n + 1) for n in range(2500)]
        store.put(Document("a", "x" * 2500, "a"), passages)
        assert list(store.passages()) == passages
        assert list(store.passages(700, 1500)) == passages[700:2200]
        assert list(store.passages(2400, 500)) == passages[2400:]
        assert list(store.passages(0, 1000)) == passages[:1000]
        assert list(store.passages(0, 0)) == []


def test_the_whole_text_comes_back(store: PassageStore) -> None:
    assert store.document_text("a.md") == TEXT


def test_unknown_ids_are_refused(store: PassageStore) -> None:
    with pytest.raises(InputError, match="no passage has the id 7"):
        store.get([0, 7])
    with pytest.raises(InputError, match="no document has the id 'c.md'"):
        store.document_text("c.md")


def test_many_passages_can_be_asked_for(tmp_path: Path) -> None:
    text = "x" * 5000
    with PassageStore.create(tmp_path / "many.sqlite") as store:
        passages = [Passage(n, "a", "x", n, n + 1) for n in range(5000)]
        store.put(Document("a", text, "a"), passages)
        assert store.get(range(4999, -1, -1)) == passages[::-1]


def test_an_open_store_cannot_be_changed(store: PassageStore) -> None:
    with pytest.raises(InputError, match=r"cannot store the document 'c.md'.*readonly"):
        store.put(Document("c.md", "text", "c.md"), [])


@pytest.mark.parametrize(
    ("document", "passages", "message"),
    [
        (FIRST, [], "cannot store the document 'a.md'"),
        (Document("c", "text", "c"), [Passage(0, "c", "text", 0, 4)], "cannot store .*'c'"),
        (Document("c", "text", "c"), [Passage(9, "a.md", "text", 0, 4)], "belongs to 'a.md'"),
        (Document("c", "\ud800", "c"), [], "cannot store the document 'c'"),
    ],
)
def test_a_document_is_put_whole_or_not_at_all(
    tmp_path: Path, document: Document, passages: list[Passage], message: str
) -> None:
    with PassageStore.create(tmp_path / "s.sqlite") as store:
        store.put(FIRST, PASSAGES)
        before = store.documents()
        with pytest.raises(InputError, match=message):
            store.put(document, passages)
        assert store.documents() == before
        assert store.get([0, 1]) == PASSAGES


def test_several_threads_may_read(store: PassageStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(store.get, [[0, 1], [1]] * 50))
    assert found == [PASSAGES, PASSAGES[1:]] * 50


def test_reading_leaves_no_files_behind(path: Path) -> None:
    before = sorted(entry.name for entry in path.parent.iterdir())
    with PassageStore.open(path) as store:
        store.get([0])
        assert sorted(entry.name for entry in path.parent.iterdir()) == before == [path.name]


def test_a_foreign_journal_cannot_change_what_is_read(path: Path) -> None:
    # SQLite would roll it back into the file, whose checksum has been compared already.
    path.with_name(f"{path.name}-journal").write_bytes(b"x" * 4096)
    with PassageStore.open(path) as store:
        assert store.get([0, 1]) == PASSAGES


@pytest.mark.parametrize("content", [None, b"", b"no database" * 1000])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "passages.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(IndexFormatError, match=r"cannot (open|read) the store .*passages.sqlite"):
        PassageStore.open(path)


def test_a_store_is_never_overwritten(path: Path) -> None:
    with pytest.raises(InputError, match="the file exists already"):
        PassageStore.create(path)


def test_a_store_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot make a store"):
        PassageStore.create(tmp_path / "gone" / "passages.sqlite")
