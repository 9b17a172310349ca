"""Whether a program that a model wrote passes its tests. Running it is the user's explicit wish."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_FENCED = re.compile(r"```(?:[A-Za-z0-9_+-]*)\n(.*?)(?:```|\Z)", re.DOTALL)
_TIMEOUT_S = 10.0
_LIMITS = """\
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
"""


def extract_code(response: str, prompt: str) -> str:
    """Returns the program of a response.

    Args:
        response: A fenced block counts, or else the whole text.
        prompt: The beginning that was to be completed; it is put in front of what only goes on.
    """
    fenced = _FENCED.search(response)
    code = fenced[1] if fenced else response
    # Without a definition at the margin it is the body of the function that the prompt began.
    is_whole = re.search(r"^(?:def|class|async def) ", code, re.MULTILINE) is not None
    return code if is_whole else f"{prompt}{code}"


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
    limits = _LIMITS if os.name == "posix" else ""
    source = f"{limits}\n{program}\n\n{test}\n\ncheck({name})\n"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "candidate.py"
        script.write_text(source, encoding="utf-8", errors="replace")
        with subprocess.Popen(
            [sys.executable, "-I", script.name],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its children can be ended with it
        ) as process:
            try:
                return process.wait(timeout_s) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it and its children may be gone
        os.killpg(process.pid, signal.SIGKILL)


def _last_function(program: str) -> str:
    names: list[str] = re.findall(r"^def (\w+)", program, re.MULTILINE)
    return names[-1] if names else ""
