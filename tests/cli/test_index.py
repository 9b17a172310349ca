from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli.index import _DEFAULT_MODEL
from specrag.cli.main import build_app
from specrag.drafters.datastore import DatastoreDrafter
from specrag.errors import ConfigError, IndexFormatError, InputError, ModelError
from specrag.models.embedded import DEFAULT_TARGET
from specrag.models.tiny import tiny_tokenizer
from specrag.rag import named_indexes
from specrag.retrieval.encoder import Encoder, HashingEncoder

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def workplace(
    isolated_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """A working directory with a recipe `manuals`, and an empty home; no model is needed."""

    def named_encoder(name: str) -> Encoder:
        return HashingEncoder()

    monkeypatch.setattr(named_indexes, "named_encoder", named_encoder)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "indexes/manuals/recipe.toml", 'name = "manuals"\ncorpus = "c"\nencoder = ""')
    write(tmp_path / "indexes/manuals/c/filter.md", "# Filter\n\nTurn the filter to the left.")
    write(tmp_path / "indexes/manuals/c/pump.md", "The pump is in the cellar.")
    return tmp_path, isolated_home


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def run(workplace: tuple[Path, Path]) -> Run:
    def run(*args: str, stdin: str = "") -> tuple[str, str]:
        words = ["index", *args]
        result = CliRunner().invoke(build_app(words), words, input=stdin, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout, result.stderr

    return run


def build(run: Run, *args: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("build", *args, "--json")[0])
    return report


def test_build_reports_what_was_built(run: Run, workplace: tuple[Path, Path]) -> None:
    report = build(run, "manuals")
    assert report.pop("seconds") >= 0
    assert len(report.pop("index_version")) == 12
    assert report == {
        "name": "manuals",
        "path": str(workplace[1] / "indexes" / "manuals"),
        "documents": 2,
        "passages": 2,
        "built": True,
        "added": ["filter.md", "pump.md"],
        "updated": [],
        "removed": [],
        "unchanged": 0,
        "passed_over": {},
        "encoded": 2,
        "failures": [],
    }


def test_build_leaves_an_index_that_is_up_to_date(run: Run) -> None:
    assert [build(run, "manuals")["built"] for _ in range(2)] == [True, False]
    assert build(run, "manuals", "--force")["built"]
    version = build(run, "manuals")["index_version"]
    expected = f"manuals: 2 documents, 2 passages, version {version}, up to date\n"
    assert run("build", "manuals") == (expected, "")


def test_build_takes_a_recipe_file(run: Run) -> None:
    assert build(run, "indexes/manuals/recipe.toml")["name"] == "manuals"


@pytest.mark.parametrize("place", ["notes", "./notes", "notes/", "notes/a.md"])
def test_build_takes_documents(place: str, run: Run, workplace: tuple[Path, Path]) -> None:
    write(workplace[0] / "notes/a.md", "A note.")
    report = build(run, place)
    assert report["name"].startswith("a-" if place.endswith(".md") else "notes-")
    assert report["documents"] == 1


def test_a_recipe_wins_over_a_folder_of_its_name(run: Run, workplace: tuple[Path, Path]) -> None:
    write(workplace[0] / "manuals/a.md", "A note.")
    assert build(run, "manuals")["name"] == "manuals"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_build_names_the_files_left_out(
    flags: tuple[str, ...], run: Run, workplace: tuple[Path, Path]
) -> None:
    (workplace[0] / "indexes/manuals/c/broken.md").write_bytes(b"\xff\xfe\xfa")
    output, errors = run("build", "manuals", *flags)
    assert errors.startswith("left out ")
    assert "broken.md: " in errors
    assert len(errors.splitlines()) == 1
    if flags:
        (failure,) = json.loads(output)["failures"]
        assert failure["path"].endswith("broken.md")
        assert errors == f"left out {failure['path']}: {failure['reason']}\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder with the tokenizer of the toy model."""
    tiny_tokenizer().backend.save_pretrained(tmp_path / "toy")
    write(tmp_path / "toy/config.json", "{}")
    return str(tmp_path / "toy")


def test_build_can_make_a_datastore_too(run: Run, workplace: tuple[Path, Path], model: str) -> None:
    report = build(run, "manuals", "--datastore", "--model", model)
    made = report.pop("datastore")
    fingerprint = tiny_tokenizer().vocabulary_fingerprint
    folder = workplace[1] / "datastores" / "manuals" / fingerprint
    assert made.pop("seconds") >= 0
    assert made == {
        "name": "datastore:manuals",
        "path": str(folder),
        "model": "toy",
        "tokenizer": fingerprint,
        "tokens": 64,
        "texts": 2,
        "bytes": sum(path.stat().st_size for path in folder.glob("*.bin")),
        "built": True,
    }
    assert not build(run, "manuals", "--datastore", "--model", model)["datastore"]["built"]
    forced = build(run, "manuals", "--datastore", "--model", model, "--force")
    assert (forced["built"], forced["datastore"]["built"]) == (True, True)
    assert "datastore" not in build(run, "manuals")


def test_build_says_what_the_datastore_holds(run: Run, model: str) -> None:
    lines = run("build", "manuals", "--datastore", "--model", model)[0].splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("datastore:manuals: 64 tokens of toy in 2 texts, 0.0 MB, built in ")
    again = run("build", "manuals", "--datastore", "--model", model)[0].splitlines()
    assert again[1].endswith(", up to date")


def test_a_datastore_of_a_folder_is_named_after_its_index(
    run: Run, workplace: tuple[Path, Path], model: str
) -> None:
    write(workplace[0] / "notes/a.txt", "A note.")
    report = build(run, "notes", "--datastore", "--model", model)
    assert report["datastore"]["name"] == f"datastore:{report['name']}"
    assert DatastoreDrafter.named(report["name"]).name == report["datastore"]["name"]


def test_the_default_model_is_the_default_target() -> None:
    assert _DEFAULT_MODEL == DEFAULT_TARGET


def test_search_shows_the_passages_best_first(run: Run) -> None:
    lines = run("search", "manuals", "Where is the pump?")[0].splitlines()
    assert lines[0].startswith("[1] pump.md, characters 0-26, line 1, score 0.0")
    assert lines[1] == "    The pump is in the cellar."
    assert lines[3].startswith("[2] filter.md, characters ")
    assert lines[4] == "    Filter"


def test_search_builds_what_is_missing_and_prints_json(run: Run) -> None:
    found = json.loads(run("search", "manuals", "-", "-k", "1", "--json", stdin="the pump\n")[0])
    (passage,) = found["passages"]
    assert passage.pop("score") > 0.03  # fused ranks
    assert passage == {
        "document": "pump.md",
        "passage": 1,
        "page": None,
        "line": 1,
        "start": 0,
        "end": 26,
        "heading": None,
        "text": "The pump is in the cellar.",
    }


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (["build", "manual"], ConfigError, "did you mean 'manuals'?"),
        (["build", "no/such"], ConfigError, "there is no folder or file 'no/such'"),
        (["build", "no.toml"], ConfigError, "cannot read the recipe 'no.toml'"),
        (["build", "manuals", "--model", "x"], ConfigError, "--model x says whose tokens"),
        (["build", "manuals", "--datastore", "--model", "./no"], ModelError, "no model at './no'"),
        (["search", "manual", "x"], ConfigError, "did you mean 'manuals'?"),
        (["search", "manuals", " "], InputError, "the question is blank"),
        (["info", "manual"], ConfigError, "did you mean 'manuals'?"),
        (["info", "manuals"], IndexFormatError, "no index in "),
        (["info", ".."], IndexFormatError, "no index in "),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_what_cannot_be_used_is_refused(
    args: list[str], kind: type[ConfigError], message: str
) -> None:
    words = ["index", *args]
    with pytest.raises(kind) as refused:
        CliRunner().invoke(build_app(words), words, catch_exceptions=False)
    assert message in refused.value.message


def test_info_shows_the_manifest(run: Run, workplace: tuple[Path, Path]) -> None:
    report = build(run, "manuals")
    described = json.loads(run("info", "manuals", "--json")[0])
    folder = workplace[1] / "indexes" / "manuals"
    assert described.pop("created_at").startswith("20")
    assert described.pop("specrag_version")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    assert described == {
        "name": "manuals",
        "path": str(folder),
        "documents": 2,
        "passages": 2,
        "encoder": "hashing-64",
        "dimension": 64,
        "vectors": "auto",
        "segments": 1,
        "added": [],
        "left_out": [],
        "bytes": sum(sizes),
        "index_version": report["index_version"],
    }
    lines = run("info", "manuals")[0].splitlines()
    assert lines[0] == "manuals"
    assert lines[1].split() == ["contents", "2", "documents,", "2", "passages"]
    assert lines[2].split() == ["encoder", "hashing-64,", "64", "dimensions"]
    assert lines[-1] == f"  path      {folder}"


def test_info_without_a_name_shows_all(run: Run, workplace: tuple[Path, Path]) -> None:
    write(workplace[0] / "notes/a.md", "A note.")
    names = sorted(build(run, place)["name"] for place in ("manuals", "notes"))
    assert [found["name"] for found in json.loads(run("info", "--json")[0])] == names
    starts = [line for line in run("info")[0].splitlines() if line and not line.startswith(" ")]
    assert starts == names
    assert json.loads(run("info", names[1], "--json")[0])["name"] == names[1]
    assert json.loads(run("info", "notes", "--json")[0])["name"] == names[1]


def test_info_shows_what_can_be_read_beside_what_is_damaged(
    run: Run, workplace: tuple[Path, Path]
) -> None:
    build(run, "manuals")
    write(workplace[1] / "indexes/broken/CURRENT", "nonsense")
    output, errors = run("info", "--json")
    assert [found["name"] for found in json.loads(output)] == ["manuals"]
    assert errors.startswith("left out broken: ")


def test_info_with_nothing_built_says_so(run: Run) -> None:
    output, errors = run("info")
    assert (output, "specrag index build" in errors) == ("", True)
    assert run("info", "--json") == ("[]\n", "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_drawn_on_terminals_only(
    is_terminal: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specrag.cli.index_options.show_progress", lambda: is_terminal)
    _, errors = run("build", "manuals", "--force")
    assert ("encoding: 100%" in errors) == is_terminal
