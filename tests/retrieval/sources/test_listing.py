from __future__ import annotations

import os
from pathlib import Path

import pytest

from specrag.retrieval.sources.catalog import scan
from specrag.retrieval.sources.source import Scan
from tests.retrieval.sources.samples import put, tar_of, zip_of


def names(found: Scan) -> list[str]:
    return [entry.name for entry in found.entries]


def failures(found: Scan) -> dict[str, str]:
    return {failure.path.name: failure.reason for failure in found.failures}


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    expected = ["B.md", "a.md", "a/b/c.md", "a/z.txt", "b.md"]
    for name in reversed(expected):
        put(tmp_path, name)
    assert names(scan(tmp_path)) == expected


def test_entries_tell_the_state_of_files(tmp_path: Path) -> None:
    path = put(tmp_path, "a.md", "12345")
    os.utime(path, ns=(1, 77_000_000_001))
    (entry,) = scan(tmp_path).entries
    assert (entry.path, entry.size, entry.mtime_ns, entry.source) == (
        path,
        5,
        77_000_000_001,
        str(path),
    )


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    for name in [".git/a.md", ".hidden.md", "seen.md", "sub/.venv/b.md"]:
        put(tmp_path, name)
    found = scan(tmp_path)
    assert (names(found), found.failures) == (["seen.md"], ())


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    for name in ["a.md", "b.PNG", "sub/c.png", "d", "README", "e.py", "f.pdf"]:
        put(tmp_path, name)
    found = scan(tmp_path)
    assert names(found) == ["README", "a.md", "e.py", "f.pdf"]
    assert found.others == {".png": 2, "": 1}


def test_links_to_folders_are_followed_inside_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "sub/a.md")
    put(root, ".store/b.md")
    put(tmp_path, "outside/c.md")
    (root / "store").symlink_to(root / ".store")
    (root / "sub" / "up").symlink_to(root)
    (root / "sub" / "self").symlink_to(root / "sub")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "ring.md").symlink_to(root / "ring.md")
    found = scan(root)
    assert names(found) == ["store/b.md", "sub/a.md"]
    assert failures(found) == {
        "up": "is a link that leads back to a folder it lies in; not followed",
        "self": "is a link that leads back to a folder it lies in; not followed",
        "out": "is a link that leads out of the folder; not followed",
        "ring.md": "is a link that leads nowhere",
    }


def test_links_between_folders_are_entered_once_each(tmp_path: Path) -> None:
    # Followed along every way, ten folders that link to each other hold 10! files.
    for one in range(10):
        put(tmp_path, f"d{one}/a.md")
        for other in range(10):
            (tmp_path / f"d{one}" / f"to{other}").symlink_to(tmp_path / f"d{other}")
    found = scan(tmp_path)
    assert 10 <= len(found.entries) <= 20
    assert len(names(found)) == len(set(names(found)))


def test_nested_links_list_no_file_twice(tmp_path: Path) -> None:
    put(tmp_path, ".store/sub/deep/a.md")
    for name, target in [("x1", "."), ("x2", "sub"), ("x3", "sub/deep"), ("x4", ".")]:
        (tmp_path / name).symlink_to(tmp_path / ".store" / target)
    assert len(scan(tmp_path).entries) == 1


def test_links_to_files_must_not_lead_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "a.md")
    put(tmp_path, "secret.md")
    (root / "inner.md").symlink_to(root / "a.md")
    (root / "outer.md").symlink_to(tmp_path / "secret.md")
    (root / "broken.md").symlink_to(root / "gone.md")
    found = scan(root)
    assert names(found) == ["a.md", "inner.md"]
    assert failures(found) == {
        "outer.md": "is a link that leads out of the folder; not followed",
        "broken.md": "is a link that leads nowhere",
    }


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    put(tmp_path, "real/a.md")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "b.md").symlink_to(tmp_path / "real" / "a.md")
    assert names(scan(tmp_path / "link")) == ["a.md"]
    assert names(scan(tmp_path / "b.md")) == ["b.md"]


def test_a_folder_that_cannot_be_listed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.md")
    put(tmp_path, "locked/b.md")
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = scan(tmp_path)
    assert (names(found), failures(found)) == (["a.md"], {"locked": "Permission denied"})


def test_members_of_archives_are_chosen_as_files_are(tmp_path: Path) -> None:
    members: dict[str, str | bytes] = {
        "b.md": "text",
        "inner/a.txt": "text",
        "inner/x.png": "",
        ".git/c.md": "text",
        "node_modules/d.md": "text",
        "__MACOSX/._b.md": "text",
        "nested.zip": b"",
        "empty/": "",
    }
    put(tmp_path, "sub/z.zip", zip_of(members))
    put(tmp_path, "sub/a.tar.gz", tar_of(members, "w:gz"))
    found = scan(tmp_path)
    assert names(found) == [
        *["sub/a.tar.gz/b.md", "sub/a.tar.gz/inner/a.txt"],
        *["sub/z.zip/b.md", "sub/z.zip/inner/a.txt"],
    ]
    assert {str(failure.path.relative_to(tmp_path)) for failure in found.failures} == {
        "sub/a.tar.gz/nested.zip",
        "sub/z.zip/nested.zip",
    }
    assert found.others[".png"] == 2
    assert names(scan(tmp_path, ["b.md"])) == ["sub/a.tar.gz/b.md", "sub/z.zip/b.md"]
    assert names(scan(tmp_path / "sub/z.zip", ["inner/*"])) == []
    assert names(scan(tmp_path / "sub/z.zip", ["z.zip/inner/*.txt"])) == ["z.zip/inner/a.txt"]
