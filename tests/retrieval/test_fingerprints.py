from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specrag.retrieval.document import Document
from specrag.retrieval.fingerprints import CorpusFingerprint, document_fingerprint

DIGESTS = st.lists(st.binary(min_size=32, max_size=32), max_size=8)


@given(DIGESTS, DIGESTS)
def test_a_corpus_is_known_in_any_order_and_after_what_was_taken_away(
    kept: list[bytes], gone: list[bytes]
) -> None:
    direct = CorpusFingerprint()
    for digest in kept:
        direct.add(digest)
    detour = CorpusFingerprint()
    mixed = [*gone, *reversed(kept)]
    for digest in mixed:
        detour.add(digest)
    detour = CorpusFingerprint(str(detour))
    for digest in gone:
        detour.remove(digest)
    assert str(detour) == str(direct)
    assert len(str(direct)) == len("sum256:") + 64


def test_a_document_is_known_by_id_and_text_alone() -> None:
    one = Document("a", "b c", "s")
    assert document_fingerprint(one) == document_fingerprint(Document("a", "b c", "t", "T"))
    others = [Document("a b", "c", "s"), Document("a", "bc", "s"), Document("b", "b c", "s")]
    assert len({document_fingerprint(other) for other in [one, *others]}) == 4
