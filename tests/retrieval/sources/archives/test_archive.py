from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.sources.archives.archive import clean_name, is_archive


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("a/b.md", "a/b.md"),
        ("/etc/a.md", "etc/a.md"),
        ("//x/a.md", "x/a.md"),
        ("../../a.md", "a.md"),
        ("./a/../b.md", "a/b.md"),
        ("C:\\docs\\a.md", "docs/a.md"),
        ("..", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_names_are_only_names(name: str, clean: str) -> None:
    assert clean_name(name) == clean


@given(st.text(st.sampled_from("./\\aC:\n ")))
@settings(deadline=None)
def test_a_clean_name_leads_nowhere(name: str) -> None:
    parts = clean_name(name).split("/")
    assert parts == [""] or not {"", ".", ".."} & set(parts)
    assert clean_name(clean_name(name)) == clean_name(name)


def test_archives_are_told_by_their_names() -> None:
    assert all(map(is_archive, ["a.zip", "A.TAR.GZ", "x/b.tgz", "c.tar.xz", "d.tbz2"]))
    assert not any(map(is_archive, ["a.gz", "zip", "a.zip/b.md", "a.docx"]))
