"""`specrag index add`, `remove`, `sync`, `compact` and `check` on a small index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli.main import build_app
from specrag.errors import InputError
from specrag.rag import named_indexes
from specrag.retrieval.builder_lock import builder_lock
from specrag.retrieval.encoder import Encoder, HashingEncoder

Run = Callable[..., Any]


@pytest.fixture
def home(isolated_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a recipe `manuals`, and an empty home; no model is needed."""

    def named_encoder(name: str) -> Encoder:
        return HashingEncoder()

    monkeypatch.setattr(named_indexes, "named_encoder", named_encoder)
    monkeypatch.chdir(tmp_path)
    write("indexes/manuals/recipe.toml", 'name = "manuals"\ncorpus = "c"\nencoder = ""')
    write("indexes/manuals/c/filter.md", "---\nyear: 2020\n---\n# Filter\n\nTurn it left.")
    write("indexes/manuals/c/pump.md", "---\nyear: 2024\n---\nThe pump is in the cellar.")
    return isolated_home


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def run(home: Path) -> Run:
    def run(*args: str, stdin: str | bytes = "", code: int = 0) -> Any:
        words = ["index", *args]
        result = CliRunner().invoke(build_app(words), words, input=stdin)
        if code < 0:
            return result.exception
        assert result.exit_code == code, (result.output, result.exception)
        return json.loads(result.stdout) if "--json" in args else result.stdout

    return run


def documents(run: Run) -> list[str]:
    return [one["id"] for one in run("info", "manuals", "--documents", "--json")]


def test_documents_come_and_go(run: Run) -> None:
    run("build", "manuals")
    write("more/valve.md", "The valve is red.")
    assert run("add", "manuals", "more", "--json")["added"] == ["more/valve.md"]
    assert documents(run) == ["filter.md", "pump.md", "more/valve.md"]
    found = run("search", "manuals", "Where is the red valve?", "-k", "1", "--json")
    assert found["passages"][0]["document"] == "more/valve.md"
    assert run("remove", "manuals", "pump.md", "more", "--json")["removed"] == [
        "pump.md",
        "more/valve.md",
    ]
    assert documents(run) == ["filter.md"]
    assert run("build", "manuals", "--json")["documents"] == 1
    assert run("add", "manuals", "indexes/manuals/c/pump.md", "--json")["added"] == ["pump.md"]


def test_a_sync_tells_each_document(run: Run) -> None:
    run("build", "manuals")
    write("indexes/manuals/c/pump.md", "The pump is in the attic now.")
    write("indexes/manuals/c/valve.md", "The valve is red.")
    Path("indexes/manuals/c/filter.md").unlink()
    lines = run("sync", "manuals").splitlines()
    assert lines[:3] == ["+ valve.md", "~ pump.md", "- filter.md"]
    assert lines[3].startswith("manuals: 2 documents, 2 passages, version ")
    assert run("sync", "manuals").endswith(", up to date\n")


def test_standard_input_is_a_document(run: Run) -> None:
    run("build", "manuals")
    report = run("add", "manuals", "-", "--name", "note", "--json", stdin="A note about oil.")
    assert (report["added"], report["documents"]) == (["note"], 3)
    again = run("add", "manuals", "-", "--name", "note", "--json", stdin="A note about oil.")
    assert (again["added"], again["unchanged"]) == ([], 1)
    error = run("add", "manuals", "-", stdin=" \n", code=-1)
    assert isinstance(error, InputError)


def test_a_search_can_be_filtered_and_by_words(run: Run) -> None:
    run("build", "manuals")
    found = run("search", "manuals", "it", "--where", "year>=2024", "--json")["passages"]
    assert [one["document"] for one in found] == ["pump.md"]
    words = run("search", "manuals", "cellar", "--mode", "bm25", "--json")["passages"]
    assert [one["document"] for one in words] == ["pump.md"]
    assert run("search", "manuals", "unknown", "--mode", "bm25") == ""
    assert len(run("search", "manuals", "cellar", "--mode", "hybrid", "--json")["passages"]) == 3
    for words, message in (
        (["--where", "yaer=1"], "yaer"),
        (["--where", "year~1"], "unknown operator '~'"),
        (["--mode", "bm52"], "unknown search mode 'bm52'; did you mean 'bm25'"),
    ):
        assert message in str(run("search", "manuals", "it", *words, code=-1))


def test_compaction_leaves_one_segment_without_what_is_gone(run: Run, home: Path) -> None:
    run("build", "manuals")
    write("secret.md", "The word is xylophone.")
    run("add", "manuals", "secret.md")
    assert run("info", "manuals", "--json")["segments"] == 2
    run("remove", "manuals", "secret.md", "--compact")
    assert run("info", "manuals", "--json")["segments"] == 1
    folder = home / "indexes" / "manuals"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"xylophone" in path.read_bytes()]
    assert run("compact", "manuals", "--json")["segments"] == 1


def test_a_check_finds_damage_and_says_what_to_do(run: Run, home: Path) -> None:
    run("build", "manuals")
    assert run("check", "manuals").startswith("sound: 3 files, ")
    assert run("check", "manuals", "--json")["sound"] is True
    (path,) = (home / "indexes" / "manuals").rglob("vectors.faiss")
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    report = run("check", "manuals", "--json", code=1)
    assert report["problems"] == [
        {
            "path": str(path),
            "message": "was altered after it was written: its SHA-256 differs",
        }
    ]
    run("build", "manuals", "--force")
    assert run("check", "manuals", "--json")["sound"] is True


def test_a_strict_build_stops(run: Run) -> None:
    Path("indexes/manuals/c/bad.txt").write_bytes(b"\0\1" * 40)
    assert "bad.txt: is binary" in str(run("build", "manuals", "--strict", code=-1))
    assert run("build", "manuals", "--json")["documents"] == 2


def test_a_second_writer_waits_and_is_told(run: Run, home: Path) -> None:
    run("build", "manuals")
    with builder_lock(home / "indexes" / "manuals"):
        error = run("remove", "manuals", "pump.md", "--wait", "0.1", code=-1)
        assert "another process is building" in str(error)
        # A search asks the index as it is.
        assert run("search", "manuals", "cellar", "-k", "1", "--json")["passages"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "manuals", "no/such"), "there is no file or folder 'no/such'"),
        (("remove", "manuals", "no.md"), "no document of 'manuals' has the id or the path 'no.md'"),
        (("check", "manual"), "did you mean 'manuals'?"),
        (("info", "--documents"), "--documents lists those of one index"),
    ],
)
def test_what_is_not_there_is_told(run: Run, words: tuple[str, ...], message: str) -> None:
    run("build", "manuals")
    assert message in str(run(*words, code=-1))
    assert documents(run) == ["filter.md", "pump.md"]
