"""A real server on a real socket, and a client for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import httpx
import pytest
from fastapi import FastAPI

from specrag.rag.build import SpecRAG
from specrag.server.app import create_app
from specrag.server.listener import listen, reserve, server_for, url_of
from specrag.server.settings import ServerSettings


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for something that another thread brings about; a test must not wait for ever."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    with reserve("127.0.0.1", 0) as sock:
        listen(sock)
        server = server_for(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server ended before it had started"
                time.sleep(0.01)
            with httpx.Client(base_url=url_of(sock), timeout=120, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def serve() -> Callable[[FastAPI], AbstractContextManager[httpx.Client]]:
    """Serves an application while the context lasts."""
    return serving


@pytest.fixture(scope="session")
def client(tiny_rag: SpecRAG) -> Iterator[httpx.Client]:
    """A client of a server of the toy pipeline."""
    with serving(create_app(ServerSettings(), tiny_rag)) as client:
        yield client
