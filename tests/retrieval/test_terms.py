from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.terms import content_words, coverage, query_terms, search_terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Queries of two classes", "the query of two classe"),
        ("gas, bus and glass: this was ours", "gas bus and glass this was our"),
        ("GPUs and a GPU, URLs", "gpu and a gpu url"),
        ("draft_tree", "draft_tree draft tree"),
        ("DraftTrees", "drafttree draft tree"),
        ("parseHTTPResponse iPhone", "parsehttpresponse parse http response iphone phone"),
        ("torch.nn.Linear.", "torch.nn.linear torch nn linear"),
        ("e-mail __init__ _", "e-mail e mail init"),
        ("MAX_NUM_TOKENS", "max_num_token max num token"),
        ("Bob’s dog's KIT'S", "bob dog kit"),
        ("don't", "don't don t"),
        ("3.11 1,000,000 1,2 2026-11-30 HNSW32", "3.11 1000000 1 2 2026-11-30 hnsw32"),
        (
            "ﬁle ＡＢＣ naïve STRASSE straße co\u00adoperate",
            "file abc naïve strasse strasse cooperate",
        ),
        ("cafe\u0301 हिन्दी", "café हिन्दी"),
        ("1,0000 12,345,67", "1 0000 12 345 67"),
        ("草稿模型a", "草 稿 模 型 草稿 稿模 模型 a"),
        ("風。", "風"),
        ("カタカナの本", "カ タ カ ナ の 本 カタ タカ カナ ナの の本"),
        ("ｶﾞ", "ガ"),
        ("책은 한국어", "책 은 책은 한 국 어 한국 국어"),
        ("𠮷野", "𠮷 野 𠮷野"),
        ("", ""),
        ("?! -- _ ' .", ""),
        ("x" * 70, "x" * 64),
        ("Aa" * 40, "aa" * 32),
    ],
)
def test_a_text_is_found_by_these_terms(text: str, expected: str) -> None:
    assert sorted(search_terms(text).elements()) == sorted(expected.split())


def test_a_query_of_other_words_does_not_ask_for_common_ones() -> None:
    assert set(query_terms("What is the draft?")) == {"draft"}
    assert set(query_terms("The who")) == {"the", "who"}
    assert query_terms("draft of a draft") == {"draft": 2}
    assert not query_terms("?")


@given(st.text())
@settings(deadline=None, max_examples=300)
def test_any_text_has_terms_that_can_be_stored(text: str) -> None:
    for term, count in search_terms(text).items():
        assert count > 0
        assert 0 < len(term) <= 64
        term.encode()  # halves of characters are no part of a term


@given(st.lists(st.sampled_from(["draft tree", "草稿", "a_b", "3.5", "The GPUs"]), max_size=6))
@settings(deadline=None)
def test_texts_apart_have_the_terms_of_each(texts: list[str]) -> None:
    together = search_terms(" \n".join(texts))
    assert together == sum((search_terms(text) for text in texts), type(together)())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What are the Zones of draft_trees, and 3.5 e-mails?", "zone draft_tree 3.5 e-mail"),
        ("torch.nn passes 草稿", "torch.nn passes 草 稿"),
        ("pass gas this", "pass gas"),
    ],
)
def test_the_content_words_that_the_gate_counts_stay_as_they_were(text: str, expected: str) -> None:
    # A calibrated gate read its coverage from these; search terms may change, these may not.
    assert content_words(text) == set(expected.split())


def test_coverage_is_the_share_of_rare_words_that_are_known() -> None:
    assert coverage([], {}, 10) == 1.0
    assert coverage(["a", "b"], {}, 10) == 0.0
    assert coverage(["a", "b"], {"a": 1, "b": 2}, 10) == 1.0
    assert 0.0 < coverage(["common", "rare"], {"common": 9}, 10) < 0.1
