from __future__ import annotations

import inspect
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_type_hints

import httpx
import pytest
from typer.testing import CliRunner

from specrag.cli.main import build_app
from specrag.cli.serve import serve
from specrag.errors import ConfigError, MissingExtraError
from specrag.server.settings import ServerSettings

# `specrag serve` in a process of its own, with a toy pipeline that loads in no time.
TOY = """
import sys
from specrag.cli.main import main
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.rag.build import SpecRAG

def load(*args, **kwargs):
    return SpecRAG(target=tiny_target(vocab_size=96), tokenizer=tiny_tokenizer(96))

SpecRAG.load = load
sys.argv = ["specrag", *sys.argv[1:]]
main()
"""


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", TOY, "serve", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def url_printed_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"serving the pipeline 'default' on (http://127\.0\.0\.1:\d+) .*\n", line)
    assert found, line
    return found[1]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_status_0(signal_number: int) -> None:
    with running() as process:
        url = url_printed_by(process)
        found = httpx.post(f"{url}/ask", json={"question": "Hi?", "max_tokens": 2}, trust_env=False)
        assert found.status_code == 200
        assert found.json()["gate"]["retrieve"] is False
        process.send_signal(signal_number)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output == ""
    assert "Traceback" not in errors
    assert '"POST /ask HTTP/1.1" 200' in errors  # the log of requests is on standard error


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "specrag", "serve", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-2:] == [
        f"error: port {port} of 127.0.0.1 is already in use",
        "hint: stop the other program, or choose another port with --port",
    ]


@pytest.fixture
def _signals() -> Iterator[None]:
    """Puts back the handlers that the command installs."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_an_unknown_pipeline_is_refused() -> None:
    words = ["serve", "--port", "0", "-p", "aq"]
    with pytest.raises(ConfigError, match="no definition named 'aq'"):
        CliRunner().invoke(build_app(words), words, catch_exceptions=False)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "prometheus_client"])
def test_without_the_extra_the_hint_says_how_to_get_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as refused:
        CliRunner().invoke(build_app(["serve"]), ["serve"], catch_exceptions=False)
    assert refused.value.hint == "pip install 'specrag[server]'"


def test_the_defaults_shown_are_those_of_the_settings() -> None:
    hints = get_type_hints(serve, include_extras=True)
    del hints["return"], hints["config"]
    defaults = ServerSettings()
    for name, hint in hints.items():
        shown = hint.__metadata__[0].show_default
        default = getattr(defaults, name)
        if isinstance(shown, str):
            assert shown == ("none" if default is None else str(default)), name
        else:
            assert not default, name
    assert all(option.default is None for option in inspect.signature(serve).parameters.values())


@pytest.mark.usefixtures("_signals")
def test_settings_come_from_flags_the_environment_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "server.toml"
    path.write_text('pipeline = "from-file"\nhost = "0.0.0.0"\nport = 1\n')
    monkeypatch.setenv("SPECRAG_SERVER_PIPELINE", "from-environment")
    words = ["serve", "--config", str(path), "--port", "0"]
    with pytest.raises(ConfigError, match="other machines reach 0.0.0.0"):
        CliRunner().invoke(build_app(words), words, catch_exceptions=False)
    words.append("--open-to-all")
    with pytest.raises(ConfigError, match="no definition named 'from-environment'"):
        CliRunner().invoke(build_app(words), words, catch_exceptions=False)
