"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What to serve, and where.

    Attributes:
        pipeline: Name or TOML file of the pipeline.
        docs: A folder or file of documents to ask instead of the pipeline's index.
        host: Address to listen on.
        port: Port to listen on; 0 takes any free one.
    """

    pipeline: str = "qa"
    docs: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
