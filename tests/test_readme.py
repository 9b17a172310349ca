"""What README and handbook tell users to type exists; what the README shows runs."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from specrag.cli.main import COMMANDS, build_app
from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.stats import DecodingStats
from specrag.drafters.catalog import describe
from specrag.gate.calibration import FEATURES
from specrag.gate.policy import GateDecision
from specrag.rag.config import PipelineConfig
from specrag.retrieval.recipe import IndexRecipe, load_recipe
from specrag.server.schemas import (
    AskRequest,
    AskResponse,
    GateRequest,
    HealthResponse,
    RetrieveRequest,
    SpeculationShape,
    TimingsShape,
)
from specrag.server.settings import ServerSettings

ROOT = Path(__file__).resolve().parent.parent
HANDBOOK = "indexes/handbook/corpus"
README = "README.md"
READMES = [README, "pipelines/README.md", "indexes/README.md"]
PAGES = sorted(f"{HANDBOOK}/{path.name}" for path in (ROOT / HANDBOOK).glob("*.md"))
NOT_CHECKED_FURTHER = {"cp", ".venv/bin/python"}
DOCS = "~/manuals"  # the README's example of a user's folder

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_ASSIGNMENT = re.compile(r"\w+=")


class Typed(NamedTuple):
    """A command line and the file that shows it."""

    source: str
    words: tuple[str, ...]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in _FENCE.findall(text) if language in languages]


def commands_in(script: str) -> Iterator[tuple[str, ...]]:
    """Yields the commands of a script, without comments and variables set before them."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            command = words[:end]
            while command and _ASSIGNMENT.match(command[0]):
                command = command[1:]
            if command:
                yield tuple(command)
            words = words[end + 1 :]


def typed(names: Iterable[str]) -> list[Typed]:
    shells = ("sh", "")  # the handbook's blocks of commands name no language
    return [
        Typed(name, words)
        for name in names
        for block in blocks(read(name), *shells)
        for words in commands_in(block)
    ]


SHOWN = typed([*READMES, *PAGES])
SHOWN_IN_README = [shown for shown in SHOWN if shown.source == README]


def of(program: str, shown: Iterable[Typed] = SHOWN) -> list[Any]:
    found = [item for item in shown if item.words[0] == program]
    return [pytest.param(i.words, id=f"{Path(i.source).name}:{' '.join(i.words)}") for i in found]


def command_for(words: Iterable[str]) -> Any:
    """Returns the command that some words name, as deep as they go."""
    found: Any = typer.main.get_command(build_app(list(words)))
    for word in words:
        children = getattr(found, "commands", {})
        if word not in children:
            break
        found = children[word]
    return found


def parse(args: list[str]) -> None:
    """Parses a command line to its end and runs nothing."""
    app: Any = typer.main.get_command(build_app(args))
    command: Any = app
    for word in args:
        command = getattr(command, "commands", {}).get(word, command)
    command.callback = lambda **_: None
    app.main(args, prog_name="specrag", standalone_mode=False)


def options_of(command: Any) -> list[tuple[str, ...]]:
    """Returns the names of each option of a command and of those below it, but --help."""
    own = [tuple(p.opts) for p in command.params if p.opts[0].startswith("-")]
    below = [found for c in getattr(command, "commands", {}).values() for found in options_of(c)]
    return [names for names in (*own, *below) if "--help" not in names]


def test_commands_are_found_in_scripts() -> None:
    script = "# no\nA=1\nB=2 specrag ask 'x y' && make test # yes\ncurl a \\\n  -d b\n"
    assert list(commands_in(script)) == [
        ("specrag", "ask", "x y"),
        ("make", "test"),
        ("curl", "a", "-d", "b"),
    ]


def test_only_commands_that_are_checked_are_shown() -> None:
    programs = {shown.words[0] for shown in SHOWN}
    assert programs == {"specrag", "make", "pip", "curl"} | NOT_CHECKED_FURTHER


@pytest.mark.parametrize("words", of("specrag"))
def test_a_shown_command_can_be_parsed(words: tuple[str, ...]) -> None:
    parse(list(words[1:]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ask x --mod never", "No such option"),
        ("ask", "Missing"),
        ("ask x y", "unexpected extra argument"),
        ("index bild", "No such command"),
        ("serve --port many", "valid int"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        parse(line.split())


@pytest.mark.parametrize("words", of("make"))
def test_a_shown_make_target_exists(words: tuple[str, ...]) -> None:
    command = ["make", "-n", *words[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", of("pip"))
def test_what_pip_is_told_to_install_exists(words: tuple[str, ...]) -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    found = re.fullmatch(r"(?:\.|specrag)(?:\[(.+)\])?", words[2])
    assert words[:2] == ("pip", "install")
    assert found, words
    assert set(filter(None, (found[1] or "").split(","))) <= set(extras)


@pytest.mark.parametrize("words", of("curl"))
def test_a_shown_request_is_valid(words: tuple[str, ...]) -> None:
    address = next(word for word in words if word.startswith("$ADDRESS/"))
    if "-d" in words:
        shapes = {"ask": AskRequest, "retrieve": RetrieveRequest, "gate": GateRequest}
        shape = shapes[address.removeprefix("$ADDRESS/")]
        assert shape.model_validate_json(words[words.index("-d") + 1]).question
    else:
        assert address == "$ADDRESS/healthz"


@pytest.mark.parametrize("name", [*READMES, *PAGES])
def test_commands_named_in_the_text_exist(name: str) -> None:
    for span in _SPAN.findall(_FENCE.sub("", read(name))):
        words = shlex.split(span) if span.startswith("specrag ") else []
        if len(words) < 2 or words[1] == "--version":
            continue
        assert words[1] in COMMANDS, span
        command = command_for(words[1:])
        below = getattr(command, "commands", {})
        assert not below or len(words) == 2 or words[2].startswith("-"), span
        known = {option for names in options_of(command) for option in names} | {"--help"}
        assert {word for word in words if re.match(r"-{1,2}\w", word)} <= known, span


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_page_of_the_command_line_names_every_option(name: str) -> None:
    sections = re.split(r"^## ", read(f"{HANDBOOK}/cli.md"), flags=re.MULTILINE)
    mine = [text for text in sections if text.partition("\n")[0].endswith(f"specrag {name}")]
    assert mine
    spans = " ".join(_SPAN.findall(_FENCE.sub("", "".join(mine))))
    named = {word for word in spans.split() if word.startswith("-")} - {"-", "--help"}
    options = options_of(command_for([name]))
    assert [names for names in options if not named & set(names)] == []
    assert named <= {option for names in options for option in names}


def _config_keys() -> set[str]:
    config = PipelineConfig()
    sections = [getattr(config, item.name) for item in dataclasses.fields(config)]
    kinds = [section for section in sections if dataclasses.is_dataclass(section)]
    return {item.name for kind in kinds for item in dataclasses.fields(kind)}


def _fields(kind: type[Any]) -> set[str]:
    return {item.name for item in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("pipelines/README.md", _config_keys()),
        (f"{HANDBOOK}/pipelines.md", _config_keys()),
        ("indexes/README.md", _fields(IndexRecipe)),
        (f"{HANDBOOK}/indexes.md", _fields(IndexRecipe)),
        (f"{HANDBOOK}/sampling.md", _fields(SamplingParams)),
        (f"{HANDBOOK}/gate.md", {*_fields(GateDecision), *FEATURES}),
        (f"{HANDBOOK}/python-api.md", set(AskResponse.model_fields)),
        (f"{HANDBOOK}/rest.md", {*AskRequest.model_fields, *HealthResponse.model_fields}),
        (f"{HANDBOOK}/rest.md", set(ServerSettings.model_fields)),
        (f"{HANDBOOK}/rest.md", {*TimingsShape.model_fields, *SpeculationShape.model_fields}),
        (f"{HANDBOOK}/python-api.md", _fields(DecodingStats)),
        (f"{HANDBOOK}/draft-length.md", _fields(SpeculationConfig)),
        (f"{HANDBOOK}/drafters.md", {name for name, _ in describe()}),
    ],
)
def test_a_page_names_every_key(name: str, wanted: set[str]) -> None:
    assert wanted - set(_SPAN.findall(read(name))) == set()


@pytest.mark.parametrize("name", READMES)
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", read(name))
    assert links
    targets = [link for link in links if "://" not in link]
    assert [link for link in targets if not ((ROOT / name).parent / link).exists()] == []


def test_the_recipe_of_the_handbook_is_valid(tmp_path: Path) -> None:
    (block,) = blocks(read(f"{HANDBOOK}/indexes.md"), "toml")
    (tmp_path / "recipe.toml").write_text(block, encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.toml").name == "manuals"


@pytest.mark.parametrize("name", [README, *PAGES])
def test_what_python_blocks_import_exists(name: str) -> None:
    for block in blocks(read(name), "python"):
        kinds = (ast.Import, ast.ImportFrom)
        imports = [node for node in ast.parse(block).body if isinstance(node, kinds)]
        exec(ast.unparse(ast.Module(list(imports), [])), {})


@pytest.mark.embedded
@pytest.mark.parametrize(
    "words",
    [param for param in of("specrag", SHOWN_IN_README) if param.values[0][1] != "serve"],
)
def test_a_command_of_the_readme_runs(
    words: tuple[str, ...],
    tmp_path: Path,
    embedded_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(embedded_home))
    (tmp_path / "device.md").write_text("# Reset\n\nHold the red button for ten seconds.\n")
    args = [str(tmp_path) if word == DOCS else word for word in words[1:]]
    result = CliRunner().invoke(build_app(args), args)
    assert result.exit_code == 0, result.output
    if args[0] == "ask":
        assert "Decoding" in result.stdout
        source = "device.md" if str(tmp_path) in args else ".md"
        assert f"{source}, characters " in result.stdout
    else:
        assert result.stdout.strip()
        assert "mean acceptance length" in result.stderr


@pytest.mark.embedded
def test_the_python_block_of_the_readme_runs(
    embedded_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(embedded_home))
    (block,) = blocks(read(README), "python")
    names: dict[str, Any] = {}
    exec(compile(block, README, "exec"), names)
    printed = capsys.readouterr().out
    answer, result = names["answer"], names["result"]
    assert answer.text in printed
    assert answer.gate.reason in printed
    assert printed.endswith(f"{result.text} {result.stats.mean_acceptance_length}\n")
    assert len(result.token_ids) <= 32
    assert json.loads(json.dumps(answer.to_dict()))["index"] == "handbook"
    names["rag"].retriever.close()


def test_the_package_runs_as_a_module() -> None:
    """The examples start it so."""
    command = [sys.executable, "-m", "specrag", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith("specrag "), done.stderr
