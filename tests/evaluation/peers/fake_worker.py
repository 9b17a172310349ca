"""A worker that needs nothing: what it is told to do stands in the start message."""

from __future__ import annotations

import os
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

    def decode(prompt_ids: list[int], max_tokens: int, min_tokens: int) -> dict[str, Any]:
        print("another stray print")
        if mode == "crash":
            sys.stderr.write("out of memory\n")
            os._exit(3)
        if mode == "hang":
            time.sleep(60)
        if mode == "lacks":
            return {"token_ids": [1]}
        if mode == "no json":
            os.write(WIRE, b"what\n")
        return {
            "token_ids": [*prompt_ids, max_tokens, min_tokens],
            "prefill_ms": None,
            "decode_ms": 2,
        }

    return decode, {"version": "1", "threads": os.environ["OMP_NUM_THREADS"]}


WIRE = os.dup(1)
if __name__ == "__main__":
    serve(_open)
