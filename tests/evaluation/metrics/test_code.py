"""Programs are taken out of answers and run apart."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from specrag.evaluation.metrics.code import extract_code, passes

PROMPT = '''from typing import List


def helper(x: int) -> int:
    return x + 1


def double(values: List[int]) -> List[int]:
    """Doubles each value."""
'''
TEST = (
    "def check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n    assert candidate([]) == []"
)
WHOLE = (
    "def double(values: List[int]) -> List[int]:\n    return [helper(v) - 1 + v for v in values]\n"
)
BODY = "    return [2 * v for v in values]\n"


@pytest.mark.parametrize(
    "response",
    [
        WHOLE,
        f"Here is the function:\n\n```python\n{WHOLE}```\nIt doubles each value.",
        f"```python\n{WHOLE}",  # cut off
        f"```\n{WHOLE}```",
        f"Install it:\n```sh\npip install x\n```\nThen:\n```python\n{WHOLE}```",
        f"Sure! The function:\n\n{WHOLE}\nThis doubles each value, doesn't it?",
        BODY,
        f"```python\n{BODY}```",
        f"```python\n{BODY}",
        f"{BODY}\n\ndef other(x):\n    return x\n\nAnd so on.",
        f"\n{BODY}\n\nThis works because ...",
        "    def inner(v):\n        return 2 * v\n    return [inner(v) for v in values]\n",
        f"@staticmethod\ndef unused():\n    pass\n\n{WHOLE}",
        f"import math\n\n{WHOLE}",
    ],
)
def test_a_program_is_found_in_an_answer(response: str) -> None:
    assert passes(extract_code(response, PROMPT), TEST, "double", 20)


def test_a_prompt_that_is_no_python_stays_out() -> None:
    code = extract_code("```python\ndef f(x):\n    return x\n```", "Write a function, please.")
    assert code == "def f(x):\n    return x\n"
    assert extract_code("I cannot.", "Write a function.") == "Write a function.I cannot."


def test_the_name_may_be_left_to_the_program() -> None:
    program = "def helper():\n    pass\ndef double(values):\n    return [2 * v for v in values]\n"
    assert passes(program, TEST, "", 20)
    assert not passes("x = 1", TEST, "", 20)


@pytest.mark.parametrize(
    "program",
    [
        "def double(values):\n    return values\n",  # wrong
        "def double(values)\n",  # no Python
        "",
        "import sys\ndef double(values):\n    sys.exit(0)\n",  # leaves before the test is over
        "import os\nos._exit(0)\n",
        "raise SystemExit\n",
        "def double(values):\n    return [input() for _ in values]\n",
        "def double(values):\n    return double(values)\n",
        "x = bytearray(3 << 30)\n"  # larger than memory may be
        "def double(values):\n    return [2 * v for v in values]\n",
        "open('big', 'wb').write(b'x' * (1 << 22))\n"  # larger than a file may be
        "def double(values):\n    return [2 * v for v in values]\n",
        "\ud800",
    ],
)
def test_a_program_that_does_not_do_it_fails(program: str) -> None:
    assert not passes(program, TEST, "double", 20)


@pytest.mark.parametrize(
    "start",
    [
        "if __name__ == '__main__':\n    raise SystemExit(input())\n",
        "import sys\nprint('x' * 100000)\nsys.stderr.write('y' * 100000)\n",
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\n"
        "class Point:\n    x: dataclasses.InitVar[int]\n",
        "'''\\d'''\n",
    ],
)
def test_what_stands_beside_the_function_does_not_matter(start: str) -> None:
    assert passes(
        f"{start}def double(values):\n    return [2 * v for v in values]\n", TEST, "double", 20
    )


@pytest.mark.skipif(os.name != "posix", reason="children are ended by their group")
def test_time_is_bounded_and_children_end_with_it(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    program = (
        "import subprocess, sys\n"
        'child = \'import sys, time\\nwhile True:\\n open(sys.argv[1], "a").write("x")\\n'
        " time.sleep(0.02)'\n"
        f"subprocess.Popen([sys.executable, '-c', child, {str(beat)!r}])\n"
        "def double(values):\n    while True: pass\n"
    )
    assert not passes(program, TEST, "double", 1.5)
    assert beat.exists(), "the child has to have run, or nothing is shown"
    size = beat.stat().st_size
    time.sleep(0.2)
    assert beat.stat().st_size == size


def test_a_program_sees_neither_the_environment_nor_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.chdir(tmp_path)
    program = (
        "import os\ndef double(values):\n"
        f"    assert 'HF_TOKEN' not in os.environ and os.getcwd() != {str(tmp_path)!r}\n"
        "    open('trace', 'w').close()\n"
        "    return [2 * v for v in values]\n"
    )
    assert passes(program, TEST, "double", 20)
    assert not list(tmp_path.iterdir())
