"""A worker that needs nothing: what it is told to do stands in the start message."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, os.environ["SPECRAG_WORKERS"])
from wire import serve


def _open(start: dict[str, Any]) -> Any:
    mode = start.get("mode", "")
    print("a stray print")
    if mode == "no start":
        raise SystemExit("no such model")
    if mode == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        print("another stray print")
        if mode == "crash":
            sys.stderr.write("out of memory\n")
            os._exit(3)
        if mode == "hang":
            time.sleep(60)
        if mode in BAD_REPLIES:
            return BAD_REPLIES[mode]
        if mode == "no json":
            os.write(WIRE, b"what\n")
        if mode == "no object":
            os.write(WIRE, b"[1]\n")
        return {
            "token_ids": [*prompt_ids, max_tokens, min_tokens],
            "prefill_ms": None,
            "decode_ms": 2,
        }

    if mode == "no details":
        return decode, None
    return decode, {"version": "1", "threads": os.environ["OMP_NUM_THREADS"]}


BAD_REPLIES: dict[str, dict[str, Any]] = {
    "lacks": {"token_ids": [1]},
    "text for a time": {"token_ids": [1], "prefill_ms": "soon", "decode_ms": 1},
    "text for tokens": {"token_ids": ["a"], "prefill_ms": 1, "decode_ms": 1},
    "no list": {"token_ids": 1, "prefill_ms": 1, "decode_ms": 1},
    "null": {"token_ids": [1], "prefill_ms": 1, "decode_ms": None},
}
WIRE = os.dup(1)
if __name__ == "__main__":
    serve(_open)
