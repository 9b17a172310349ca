"""Server-sent events: how a stream of events goes over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi.responses import StreamingResponse


class EventStream(StreamingResponse):
    """Events as they come; nothing on the way may keep or collect them."""

    media_type = "text/event-stream"

    def __init__(self, content: Any) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers)


def to_sse(name: str, data: Mapping[str, Any]) -> bytes:
    """Returns one event as it is sent.

    Args:
        name: Of the event.
        data: Plain data; sent as one line of JSON.
    """
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
