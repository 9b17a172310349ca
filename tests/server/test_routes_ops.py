from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from specrag.errors import ConfigError
from specrag.rag.build import SpecRAG
from specrag.server.app import create_app
from specrag.server.listener import listen, reserve, url_of
from specrag.server.settings import ServerSettings

Serve = Callable[[FastAPI], AbstractContextManager[httpx.Client]]


def test_healthz_says_what_is_served(client: httpx.Client, tiny_rag: SpecRAG) -> None:
    answer = tiny_rag.ask("Who sings?")
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "version": client.get("/openapi.json").json()["info"]["version"],
        "pipeline": answer.pipeline,
        "model": answer.model,
        "index": answer.index,
        "index_version": answer.index_version,
    }


def test_healthz_without_an_index(
    client: httpx.Client, tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_rag, "retriever", None)
    found = client.get("/healthz").json()
    assert (found["index"], found["index_version"]) == ("", "")


def test_the_version_is_that_of_the_package(
    tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} 1.2")
    assert create_app(rag=tiny_rag).version == "specrag 1.2"

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert create_app(rag=tiny_rag).version == "source"


def test_an_application_loads_what_its_settings_name(
    serve: Serve, tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []

    def load(pipeline: str, *, docs: str | None) -> SpecRAG:
        loaded.append((pipeline, docs))
        return tiny_rag

    monkeypatch.setattr(SpecRAG, "load", load)
    monkeypatch.setattr(tiny_rag, "close", lambda: loaded.append("closed"))
    app = create_app(ServerSettings(pipeline="own", docs="notes"))
    assert loaded == []
    with serve(app) as client:
        assert client.get("/healthz").json()["pipeline"] == "tiny"
    # What it has loaded it closes in the end; what it was given it leaves alone.
    assert loaded == [("own", "notes"), "closed"]
    with serve(create_app(rag=tiny_rag)):
        pass
    assert loaded.count("closed") == 1


def test_a_reserved_port_refuses_connections_until_it_listens() -> None:
    with reserve("127.0.0.1", 0) as sock:
        address = sock.getsockname()
        assert url_of(sock) == f"http://127.0.0.1:{address[1]}"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        listen(sock)
        socket.create_connection(address).close()


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of 127\.0\.0\.1 is already in use"):
            reserve("127.0.0.1", port)


def test_of_two_that_reserved_a_port_one_may_listen() -> None:
    with reserve("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with reserve("127.0.0.1", port) as second:
            listen(first)
            with pytest.raises(ConfigError, match="is already in use"):
                listen(second)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on port 0 of '{host}'"):
        reserve(host, 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_a_url_of_version_6_has_brackets() -> None:
    try:
        sock = reserve("::1", 0)
    except ConfigError:
        pytest.skip("no IPv6 on this machine")
    with sock:
        assert url_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"
