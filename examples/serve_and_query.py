"""Starts the HTTP server on a free port, asks it a question and stops it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from typing import Any


def send(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    # No proxy: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request) as response:
        content: dict[str, Any] = json.load(response)
    return content


def main() -> None:
    command = [sys.executable, "-m", "specrag", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            # The address is printed when the models are loaded.
            found = re.search(r"http://\S+", server.stdout.readline())
            if found is None:
                raise SystemExit("the server did not start")
            url = found[0]
            health = send(f"{url}/healthz")
            print("serving:", health["pipeline"], "over", health["index"])
            answer = send(
                f"{url}/ask", {"question": "What is a bonus token?", "k": 1, "max_tokens": 24}
            )
            print("answer:", answer["answer"])
            print("sources:", [citation["document"] for citation in answer["citations"]])
        finally:
            server.terminate()  # it finishes the requests under way
    print("exit status:", server.returncode)


if __name__ == "__main__":
    main()
