from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.retrieval.sources.bounds import MAX_IGNORE_FILE_BYTES
from specrag.retrieval.sources.catalog import scan
from specrag.retrieval.sources.ignore import IgnoreRules
from tests.retrieval.sources.samples import put


def names(root: Path, ignore: Sequence[str] = (), use_ignore_files: bool = True) -> list[str]:
    found = scan(root, ["*"], ignore=ignore, use_ignore_files=use_ignore_files)
    return [entry.name for entry in found.entries]


def test_rules_of_deeper_folders_prevail(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", "*.log\n/top.md\nbuild/\n")
    put(tmp_path, "sub/.gitignore", "!keep.log\n")
    put(tmp_path, "sub/.specragignore", "secret.md\n")
    for name in ["a.log", "top.md", "build/x.md", "sub/keep.log", "sub/b.log", "sub/top.md"]:
        put(tmp_path, name)
    for name in ["sub/secret.md", "secret.md", "sub/deep/secret.md"]:
        put(tmp_path, name)
    assert names(tmp_path) == ["secret.md", "sub/keep.log", "sub/top.md"]
    assert len(names(tmp_path, use_ignore_files=False)) == 9


def test_folders_of_programs_are_hidden_unless_told_otherwise(tmp_path: Path) -> None:
    for name in ["node_modules/a.md", "x/__pycache__/b.md", "c.md", "lib/site-packages/d.md"]:
        put(tmp_path, name)
    assert names(tmp_path) == ["c.md"]
    assert names(tmp_path, ["!node_modules/"]) == ["c.md", "node_modules/a.md"]
    put(tmp_path, ".specragignore", "!node_modules/")
    found = scan(tmp_path, ["*"])
    assert [entry.name for entry in found.entries] == ["c.md", "node_modules/a.md"]
    assert found.num_ignored == 2


def test_rules_of_the_user_apply(tmp_path: Path) -> None:
    put(tmp_path, "a.md")
    put(tmp_path, "draft/b.md")
    assert names(tmp_path, ["draft/"]) == ["a.md"]
    with pytest.raises(ConfigError, match="'!' is no ignore rule") as caught:
        names(tmp_path, ["!"])
    assert caught.value.hint


def test_a_bad_rule_or_file_is_reported_and_the_rest_applies(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", b"!\n*.log\n\xff\n")
    put(tmp_path, ".specragignore", "x\n" * MAX_IGNORE_FILE_BYTES)
    put(tmp_path, "a.log")
    put(tmp_path, "a.md")
    found = scan(tmp_path, ["*"])
    assert [entry.name for entry in found.entries] == ["a.md"]
    assert [(failure.path.name, failure.reason) for failure in found.failures] == [
        (tmp_path.name, "has the ignore rule '!', which is none"),
        (".specragignore", "is larger than 1 MiB; not applied"),
    ]


def test_without_a_rule_nothing_is_hidden() -> None:
    assert not IgnoreRules().hide("node_modules", is_folder=True)
