from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from specrag.cli import main as module
from specrag.cli.main import COMMANDS, main
from specrag.errors import InputError, SpecragError


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `specrag` with some arguments; returns its status, stdout and stderr."""

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specrag", *args])
        with pytest.raises(SystemExit) as done:
            main()
        status = done.value.code
        assert isinstance(status, int | None)
        output = capsys.readouterr()
        return status or 0, output.out, output.err

    return run


Run = Callable[..., tuple[int, str, str]]


def fail_with_hint() -> None:
    """A command that fails."""
    raise InputError("the question is empty", hint="ask something")


def fail_without_hint() -> None:
    raise SpecragError("it broke")


def interrupted() -> None:
    raise KeyboardInterrupt


def crash() -> None:
    raise RuntimeError("a bug")


def close_the_pipe() -> None:
    raise BrokenPipeError


group = typer.Typer()


@group.command("one")
def one(number: int = 1) -> None:
    print(f"one {number}")


@group.command("two")
def two() -> None: ...


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this file in place of the real ones."""
    monkeypatch.setitem(sys.modules, "commands_of_the_test", sys.modules[__name__])
    names = ["fail_with_hint", "fail_without_hint", "interrupted", "crash", "close_the_pipe"]
    table = {name: (f"commands_of_the_test:{name}", f"Does {name}.") for name in [*names, "group"]}
    table["absent"] = ("no_such_module:x", "Is not imported.")
    monkeypatch.setattr(module, "COMMANDS", table)


def test_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version") == (0, f"specrag {version('specrag')}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_each_command_without_importing_any(
    flag: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {name: ("no_such_module:x", COMMANDS[name][1]) for name in COMMANDS}
    monkeypatch.setattr(module, "COMMANDS", table)
    status, output, _ = run(flag)
    assert status == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in output
        assert summary[:20] in output


@pytest.mark.usefixtures("commands")
def test_nothing_typed_shows_the_help(run: Run) -> None:
    status, output, error = run()
    assert status == 2
    assert "Usage: specrag" in output + error


@pytest.mark.usefixtures("commands")
def test_a_users_error_is_two_lines_on_stderr(run: Run) -> None:
    expected = "error: the question is empty\nhint: ask something\n"
    assert run("fail_with_hint") == (2, "", expected)


@pytest.mark.usefixtures("commands")
def test_an_error_without_a_hint_is_one_line(run: Run) -> None:
    assert run("fail_without_hint") == (2, "", "error: it broke\n")


@pytest.mark.usefixtures("commands")
def test_an_interruption_is_quiet(run: Run) -> None:
    assert run("interrupted") == (130, "", "")


@pytest.mark.usefixtures("commands")
def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["specrag", "crash"])
    with pytest.raises(RuntimeError, match="a bug"):
        main()


@pytest.mark.usefixtures("commands")
def test_the_commands_of_a_group_are_found(run: Run) -> None:
    assert run("group", "one", "--number", "3") == (0, "one 3\n", "")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["grop"], "'group'"),
        (["group", "oen"], "'one'"),
        (["group", "one", "--numbr", "3"], "--number"),
    ],
)
@pytest.mark.usefixtures("commands")
def test_a_mistyped_word_suggests_the_nearest(args: list[str], expected: str, run: Run) -> None:
    status, _, error = run(*args)
    assert status == 2
    assert expected in error


@pytest.mark.usefixtures("commands")
def test_a_value_of_the_wrong_kind_is_refused(run: Run) -> None:
    status, _, error = run("group", "one", "--number", "x")
    assert status == 2
    assert "--number" in error


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str, run: Run) -> None:
    status, output, _ = run(name, "--help")
    assert status == 0
    assert f"Usage: specrag {name}" in output


def test_each_file_of_commands_is_registered() -> None:
    folder = Path(module.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if "import typer" in path.read_text("utf-8")}
    registered = {target.partition(":")[0].rpartition(".")[2] for target, _ in COMMANDS.values()}
    # The commands of `index` are registered together, and those of `train`.
    assert registered == files - {
        "main",
        "decoding_options",
        "index",
        "train",
        "index_changes",
        "index_options",
    }


def _python_m_specrag(*args: str, stdout: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "specrag", *args]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)


def test_the_package_runs_as_a_module() -> None:
    with _python_m_specrag("--help", stdout=subprocess.PIPE) as process:
        output, error = process.communicate()
    assert (process.returncode, error) == (0, b"")
    assert b"Usage: specrag" in output


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        with _python_m_specrag("models", "list", stdout=write) as process:
            _, error = process.communicate()
    finally:
        os.close(write)
    assert (process.returncode, error) == (1, b"")
