"""What an index knows of the documents and files in it, without their texts."""

from __future__ import annotations

from typing import NamedTuple

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.tombstones import Tombstone


class DocumentInfo(NamedTuple):
    """What a store knows of a document, without its text.

    Attributes:
        number: Its number in the store.
        id: The document's id.
        source: Where it came from.
        title: Its title, if known.
        metadata: Further facts.
        num_characters: Length of its text.
        hash: Digest of all that is known of it.
        fingerprint: Digest of its id and text, wherever it came from.
        first_passage: Id of its first passage.
        num_passages: Passages cut from it; their ids are consecutive.
    """

    number: int
    id: str
    source: str
    title: str | None
    metadata: dict[str, MetadataValue]
    num_characters: int
    hash: bytes
    fingerprint: bytes
    first_passage: int
    num_passages: int

    @property
    def tombstone(self) -> Tombstone:
        """The mark that this document is gone."""
        return Tombstone(self.number, self.first_passage, self.num_passages)


class IndexedFile(NamedTuple):
    """A file as it was when its documents were read.

    Attributes:
        root: The folder or archive that it was found in, or the file itself.
        name: Its path in the root.
        size: Its length in bytes.
        mtime_ns: When it was last changed, nanoseconds since 1970.
        hash: Digest of its bytes.
    """

    root: str
    name: str
    size: int
    mtime_ns: int
    hash: str
