from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from specrag.cli.main import main
from specrag.models import embedded
from specrag.models.embedded import EMBEDDED, model_dir

NAMES = list(EMBEDDED)


def specrag_models(*args: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["specrag", "models", *args])
        with pytest.raises(SystemExit) as done:
            main()
    assert isinstance(done.value.code, int | None)
    return done.value.code or 0


@pytest.fixture
def pulled(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What was asked of `pull`, which makes a folder and fetches nothing."""
    asked: list[tuple[str, bool]] = []

    def pull(name: str, *, progress: bool = True, force: bool = False) -> Path:
        asked.append((name, force))
        model_dir(name).mkdir(parents=True, exist_ok=True)
        (model_dir(name) / "weights").write_bytes(b"w" * 3_000_000)
        return model_dir(name)

    monkeypatch.setattr(embedded, "pull", pull)
    monkeypatch.setattr(embedded, "is_ready", lambda name: model_dir(name).exists())
    assert not isolated_home.exists()
    return asked


@pytest.mark.usefixtures("pulled")
def test_list_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    specrag_models("pull", NAMES[0])
    capsys.readouterr()
    assert specrag_models("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "kind", "licence", "size", "state", "path"]
    assert lines[1].split()[:-1] == [NAMES[0], "target", "Apache-2.0", "3", "MB", "ready"]
    assert lines[1].endswith(str(model_dir(NAMES[0])))
    assert lines[2].split()[:-1] == [NAMES[1], "encoder", "Apache-2.0", "-", "not", "here"]
    assert lines[-1].endswith("specrag models pull")


@pytest.mark.usefixtures("pulled")
def test_list_as_json_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    specrag_models("pull", NAMES[0])
    capsys.readouterr()
    assert specrag_models("list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == NAMES
    assert [row["ready"] for row in rows] == [True, False]
    assert [row["bytes"] for row in rows] == [3_000_000, 0]
    assert [row["kind"] for row in rows] == ["target", "encoder"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], [(name, False) for name in NAMES]),
        ([NAMES[1]], [(NAMES[1], False)]),
        ([NAMES[1], NAMES[0], "--force"], [(NAMES[1], True), (NAMES[0], True)]),
    ],
)
def test_pull_fetches_what_is_named_or_all(
    args: list[str],
    expected: list[tuple[str, bool]],
    pulled: list[tuple[str, bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert specrag_models("pull", *args) == 0
    assert pulled == expected
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"{name}: {model_dir(name)}" for name, _ in expected]


@pytest.mark.parametrize("name", ["smollm2-135m", "gpt2", "./model.gguf"])
def test_an_unknown_name_is_refused_before_anything_is_fetched(
    name: str, pulled: list[tuple[str, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert specrag_models("pull", NAMES[0], name) == 2
    assert pulled == []
    error = capsys.readouterr().err
    assert error.startswith(f"error: no embedded model named {name!r}")
    assert NAMES[0] in error
