from __future__ import annotations

import pytest

from specrag.retrieval.sources.patterns import matcher

NAMES = ["a.md", "sub/b.md", "sub/deep/c.MD", "sub/d.txt", "axmd.rst", "x\n.md"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*.md"], ["a.md", "sub/b.md", "sub/deep/c.MD", "x\n.md"]),
        (["**/*.md"], ["a.md", "sub/b.md", "sub/deep/c.MD", "x\n.md"]),
        (["sub/*.md"], ["sub/b.md"]),
        (["sub/**"], ["sub/b.md", "sub/deep/c.MD", "sub/d.txt"]),
        (["sub/**/c.md", "?.txt"], ["sub/deep/c.MD", "sub/d.txt"]),
        (["A.md"], ["a.md"]),
        (["a.m?"], ["a.md"]),
        ([], []),
    ],
)
def test_patterns_choose_names(patterns: list[str], expected: list[str]) -> None:
    assert list(filter(matcher(patterns), NAMES)) == expected
