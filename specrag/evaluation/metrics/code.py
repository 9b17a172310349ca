"""Whether a program that a model wrote passes its tests. Running it is the user's explicit wish."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

_FENCED = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_DEFINITION = re.compile(r"^(?:async def|def|class)\s", re.MULTILINE)
_BEGINNING = re.compile(r"^(?:async def|def|class|import|from|@)\s?\w", re.MULTILINE)
_TIMEOUT_S = 10.0
_PASSED = "passed"
# A program that leaves early has passed nothing, so the end writes a file.
_RUNNER = f"""\
import pathlib, sys
try:
    import resource
    for limit, most in {{limits}}:
        resource.setrlimit(getattr(resource, limit), (most, most))
except (ImportError, OSError, ValueError):
    pass
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import candidate
pathlib.Path(__file__).with_name("{_PASSED}").touch()
"""


def extract_code(response: str, prompt: str) -> str:
    """Returns the program of a response.

    Args:
        response: The first fenced block with a definition counts, or else the whole text; what
            follows the program is left out.
        prompt: The beginning that was to be completed. It stands before the program: a body goes
            on from it, and a whole function takes imports and helpers from it.
    """
    blocks: list[str] = _FENCED.findall(response)
    code = next(filter(_DEFINITION.search, blocks), blocks[0] if blocks else response)
    goes_on = code.lstrip("\n").startswith((" ", "\t")) or not _DEFINITION.search(code)
    if goes_on:
        return _readable(f"{prompt}{code}")
    if not blocks and (start := _BEGINNING.search(code)):
        code = code[start.start() :]
    code = _readable(code)
    return f"{prompt}\n{code}" if _parses(prompt) else code


def passes(program: str, test: str, entry_point: str, timeout_s: float = _TIMEOUT_S) -> bool:
    """Runs a program with its test in an interpreter of its own, bounded in time and memory.

    This is no sandbox against malice: give it only what you would run yourself.

    Args:
        program: Defines the entry point.
        test: Defines ``check(candidate)``, as HumanEval and MBPP do.
        entry_point: Name of the function; empty takes the last one that the program defines.
        timeout_s: Seconds after which it has failed.
    """
    name = entry_point or _last_function(program)
    if not name:
        return False
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), f"{program}\n\n{test}\n\ncheck({name})\n", timeout_s)
        with subprocess.Popen(
            [sys.executable, "-I", "runner.py"],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its children can be ended with it
        ) as process:
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return False
            finally:
                _end(process)
        return status == 0 and (Path(folder) / _PASSED).exists()


def _write(folder: Path, source: str, timeout_s: float) -> None:
    limits = [
        ("RLIMIT_CPU", int(timeout_s) + 1),
        ("RLIMIT_FSIZE", 1 << 20),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_AS", 2 << 30),
    ]
    (folder / "runner.py").write_text(_RUNNER.format(limits=limits), encoding="utf-8")
    (folder / "candidate.py").write_text(source, encoding="utf-8", errors="replace")


def _environment() -> dict[str, str]:
    """Keeps the user's tokens and settings from the program."""
    kept = ("PATH", "SYSTEMROOT", "LANG")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it and its children may be gone
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _readable(code: str) -> str:
    """Returns the longest beginning, by lines, that is Python; all of it when none is."""
    lines = code.splitlines(keepends=True)
    for end in range(len(lines), 0, -1):
        beginning = "".join(lines[:end])
        if beginning.strip() and _parses(beginning):
            return beginning
    return code


def _parses(code: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, which are no errors
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def _last_function(program: str) -> str:
    names: list[str] = re.findall(r"^def (\w+)", program, re.MULTILINE)
    return names[-1] if names else ""
