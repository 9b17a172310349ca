"""Digests of texts and documents, by which the same is known again."""

from __future__ import annotations

import json
from hashlib import blake2b

from specrag.retrieval.document import Document, MetadataValue

_HASH_BYTES = 16
_SUM = "sum256:"
_MODULUS = 1 << 256


def text_hash(text: str) -> bytes:
    """Returns a digest of a text.

    Args:
        text: A passage's.
    """
    return blake2b(text.encode(), digest_size=_HASH_BYTES).digest()


def document_hash(document: Document) -> bytes:
    """Returns a digest of all that is known of a document.

    Args:
        document: The document.
    """
    d = document
    told = [d.id, d.text, d.source, d.title, metadata_text(d), d.syntax, d.page_starts]
    # Texts of any length and content stay apart in JSON.
    return blake2b(json.dumps(told).encode(), digest_size=_HASH_BYTES).digest()


def document_fingerprint(document: Document) -> bytes:
    """Returns a digest of the id and text of a document, wherever it came from.

    Args:
        document: The document.
    """
    return blake2b(json.dumps([document.id, document.text]).encode(), digest_size=32).digest()


def metadata_text(document: Document) -> str:
    """Returns the metadata of a document as JSON, the same for equal metadata.

    Args:
        document: The document.
    """
    return json.dumps(dict(document.metadata), ensure_ascii=False, sort_keys=True)


def read_metadata(text: str) -> dict[str, MetadataValue]:
    """Returns metadata from JSON.

    Args:
        text: By ``metadata_text``.
    """
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in json.loads(text).items()
    }


class CorpusFingerprint:
    """A digest of many documents that does not depend on their order, and can lose some again.

    Fingerprints of documents are added up; nobody is kept from making other documents with the
    same sum on purpose, which a digest of one's own documents need not fear.

    Args:
        text: As ``str`` gives it; of no documents by default.
    """

    def __init__(self, text: str = f"{_SUM}0") -> None:
        self._sum = int(text.removeprefix(_SUM), 16)

    def __str__(self) -> str:
        return f"{_SUM}{self._sum:064x}"

    def add(self, fingerprint: bytes) -> None:
        """Counts a document.

        Args:
            fingerprint: By ``document_fingerprint``.
        """
        self._sum = (self._sum + int.from_bytes(fingerprint)) % _MODULUS

    def remove(self, fingerprint: bytes) -> None:
        """Takes a document away that was counted.

        Args:
            fingerprint: By ``document_fingerprint``.
        """
        self._sum = (self._sum - int.from_bytes(fingerprint)) % _MODULUS
