"""Keys, limits, deadlines and figures of a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest
from fastapi import Depends
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from specrag.decoding.engine_limits import EngineLimits
from specrag.rag.build import SpecRAG
from specrag.server.access import needs
from specrag.server.app import create_app
from specrag.server.settings import ServerSettings
from tests.server.conftest import serving, wait_until
from tests.server.test_routes_ask import QUESTION, ask, problem
from tests.server.test_streaming import parsed

KEYS = ServerSettings(
    api_keys=(SecretStr("admin-1"), SecretStr("admin-2")),
    read_keys=(SecretStr("reader"),),
    max_body_kb=2,
    timeout_s=60,
    cors_origins=("https://a.example",),
)


@pytest.fixture
def guarded(tiny_rag: SpecRAG) -> Iterator[httpx.Client]:
    """A server with keys and tight limits."""
    app = create_app(KEYS, tiny_rag)

    @app.post("/change", dependencies=[Depends(needs("admin"))])
    async def change() -> str:
        return "changed"

    with serving(app) as client:
        yield client


@pytest.mark.parametrize(
    ("headers", "asks", "changes"),
    [
        ({}, 401, 401),
        ({"Authorization": "Bearer x"}, 401, 401),
        ({"Authorization": "Bearer admin"}, 401, 401),
        ({"Authorization": "Basic admin-1"}, 401, 401),
        ({"Authorization": "Bearer reader"}, 200, 403),
        ({"X-API-Key": "reader"}, 200, 403),
        ({"Authorization": "Bearer admin-2"}, 200, 200),
        ({"X-API-Key": "admin-1"}, 200, 200),
        ({"X-API-Key": "\u00e4dmin".encode()}, 401, 401),
    ],
)
def test_keys_and_what_they_allow(
    headers: dict[str, str], asks: int, changes: int, guarded: httpx.Client
) -> None:
    body = {"question": QUESTION, "max_tokens": 1}
    for route in ("/ask", "/retrieve", "/gate"):
        sent = body if route == "/ask" else {"question": QUESTION}
        assert guarded.post(route, json=sent, headers=headers).status_code == asks
    assert guarded.post("/change", headers=headers).status_code == changes
    assert guarded.get("/metrics", headers=headers).status_code == asks
    assert guarded.get("/healthz", headers=headers).status_code == 200
    assert guarded.get("/readyz", headers=headers).status_code == 200
    refused = guarded.post("/ask", json=body, headers=headers)
    if asks == 401:
        assert problem(refused, 401)["detail"] == "a key of this server is needed"
        assert refused.headers["WWW-Authenticate"] == "Bearer"


def test_a_body_that_is_too_large(guarded: httpx.Client) -> None:
    headers = {"X-API-Key": "reader"}
    body = {"question": QUESTION, "stop": ["x" * 3000]}
    problem(guarded.post("/ask", json=body, headers=headers), 413)
    parts = iter([b'{"question": "', b"y" * 5000, b'"}'])
    headers["Content-Type"] = "application/json"
    problem(guarded.post("/ask", content=parts, headers=headers), 413)


def test_pages_of_other_origins(guarded: httpx.Client) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Origin": "https://a.example"}
    assert guarded.options("/ask", headers=asked).headers["access-control-allow-origin"]
    asked["Origin"] = "https://b.example"
    assert "access-control-allow-origin" not in guarded.options("/ask", headers=asked).headers


def test_other_origins_are_closed_out_by_default(client: httpx.Client) -> None:
    found = client.get("/healthz", headers={"Origin": "https://a.example"})
    assert "access-control-allow-origin" not in found.headers


def test_time_that_is_up_is_told(
    client: httpx.Client, tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    forward = tiny_rag.generator.target.forward

    def slow(*args: object, **kwargs: object) -> object:
        now[0] += 10.0
        return forward(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(tiny_rag.engine, "_clock", lambda: now[0])
    monkeypatch.setattr(tiny_rag.generator.target, "forward", slow)
    found = problem(ask(client, mode="never", timeout_s=25.0), 504)
    assert found["detail"].startswith("the answer took longer than 2")
    streamed = parsed(ask(client, mode="never", timeout_s=25.0, stream=True).text)
    assert [streamed[-1][0], streamed[-1][1]["status"]] == ["error", 504]
    assert ask(client, mode="never", max_tokens=2, timeout_s=1000.0).status_code == 200
    problem(ask(client, timeout_s=0.0), 422)


def values(client: httpx.Client) -> dict[tuple[str, ...], float]:
    text = client.get("/metrics").text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_answered_is_counted(tiny_rag: SpecRAG) -> None:
    with serving(create_app(rag=tiny_rag)) as client:
        answers = [ask(client, mode=mode).json() for mode in ("never", "always", "always")]
        ask(client, mode="never", stream=True)
        problem(ask(client, question=" "), 422)
        found = values(client)
    assert found["specrag_answers_total", answers[0]["finish_reason"]] == 4
    assert found["specrag_gate_decisions_total", "true", "fixed"] == 2
    assert found["specrag_gate_decisions_total", "false", "fixed"] == 2
    assert found["specrag_lookups_total",] == 2
    tokens = [answer["usage"]["completion_tokens"] for answer in answers]
    assert found["specrag_generation_tokens_total",] == sum(tokens) + tokens[0]
    drafted = [answer["speculation"]["num_draft_tokens"] for answer in answers]
    name = "specrag_spec_decode_num_draft_tokens_total"
    assert found[name, "suffix"] == sum(drafted) + drafted[0]
    assert found["specrag_stage_seconds_count", "total"] == 4
    assert found["specrag_index_passages",] == 3
    assert found["specrag_requests_running",] == found["specrag_requests_waiting",] == 0


def test_a_server_that_is_full_is_not_ready(
    client: httpx.Client, tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/readyz").json() == {"status": "ready", "running": 0, "waiting": 0}
    gate = threading.Event()
    forward = tiny_rag.generator.target.forward

    def held_up(*args: object, **kwargs: object) -> object:
        assert gate.wait(60)
        return forward(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(tiny_rag.engine, "limits", EngineLimits(max_batch=1, max_waiting=1))
    monkeypatch.setattr(tiny_rag.generator.target, "forward", held_up)
    events = [tiny_rag.stream(QUESTION, mode="never") for _ in range(2)]
    first = next(events[0])
    thread = threading.Thread(target=lambda: next(events[1]))
    thread.start()
    wait_until(lambda: tiny_rag.engine.num_waiting > 0)
    found = problem(client.get("/readyz"), 429)
    assert found["detail"] == "1 requests are waiting already"
    gate.set()
    thread.join()
    assert first
    for stream in events:
        stream.close()  # type: ignore[attr-defined] # it is a generator
    assert tiny_rag.engine.wait_idle(60)
