"""Events over HTTP are those of the library; who goes away frees the engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from specrag.errors import DeadlineError, ModelError
from specrag.rag.build import SpecRAG
from specrag.rag.config import MODES
from tests.server.conftest import wait_until
from tests.server.test_routes_ask import QUESTION, ask, problem, without_times

Sent = tuple[str, dict[str, Any]]


def parsed(text: str) -> list[Sent]:
    """Reads events as the standard has them: one event a block, fields by line."""
    found = []
    for block in filter(None, text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert fields.keys() == {"event", "data"}
        found.append((fields["event"], json.loads(fields["data"])))
    return found


@pytest.mark.parametrize("mode", MODES)
def test_the_events_are_those_of_the_library(
    mode: str, client: httpx.Client, tiny_rag: SpecRAG
) -> None:
    response = ask(client, mode=mode, stream=True)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    found = parsed(response.text)
    expected = [(event.type, event.to_dict()) for event in tiny_rag.stream(QUESTION, mode=mode)]
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert found[:-1] == expected[:-1]
    assert without_times(found[-1][1]) == without_times(expected[-1][1])
    whole = ask(client, mode=mode).json()
    assert without_times(found[-1][1]) == without_times(whole)
    assert found[-2][1]["citations"] == whole["citations"]


def test_passages_come_when_they_are_asked_for(client: httpx.Client, tiny_rag: SpecRAG) -> None:
    answer = ask(client, mode="always", return_passages=True).json()
    streamed = dict(parsed(ask(client, mode="always", stream=True).text))
    assert answer.pop("passages") == streamed["passages"]["passages"]
    assert without_times(answer) == without_times(ask(client, mode="always").json())


def test_what_is_wrong_with_a_request_is_a_status(client: httpx.Client) -> None:
    problem(ask(client, stream=True, temperature=-1.0), 422)
    problem(ask(client, stream=True, question=" "), 422)
    found = problem(ask(client, stream=True, mode="never", question="why " * 1900), 422)
    assert "the prompt has" in found["detail"]


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (ModelError("secret /path"), 500, "the server failed to answer; its log says why"),
        (ZeroDivisionError("secret"), 500, "the server failed to answer; its log says why"),
        (DeadlineError("the answer took longer than 1 s"), 504, "the answer took longer than 1 s"),
    ],
)
def test_an_error_on_the_way_is_an_event(
    error: Exception,
    status: int,
    detail: str,
    client: httpx.Client,
    tiny_rag: SpecRAG,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    forward, calls = tiny_rag.generator.target.forward, iter(range(100))

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 3:
            raise error
        return forward(*args, **kwargs)

    monkeypatch.setattr(tiny_rag.generator.target, "forward", failing)
    found = parsed(ask(client, stream=True, mode="never").text)
    assert found[0][0] == "gate"
    name, told = found[-1]
    assert name == "error"
    assert (told["status"], told["detail"]) == (status, detail)
    assert ("secret" in caplog.text) is (status == 500)  # the log does say why
    monkeypatch.undo()
    assert ask(client, max_tokens=1).status_code == 200


class PassGate:
    """Lets passes of the target through one by one; the prefill is none of them."""

    def __init__(self, forward: Any) -> None:
        self._forward = forward
        self.arrived = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.arrived.release()
        assert self.open.acquire(timeout=60)
        return self._forward(*args, **kwargs)


@pytest.fixture
def gate(tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch) -> Iterator[PassGate]:
    """Keeps the passes of the pipeline's target."""
    made = PassGate(tiny_rag.generator.target.forward)
    monkeypatch.setattr(tiny_rag.generator.target, "forward", made)
    yield made
    made.open.release(10_000)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_the_engine(
    stream: bool, client: httpx.Client, tiny_rag: SpecRAG, gate: PassGate
) -> None:
    body = {"question": QUESTION, "mode": "never", "max_tokens": 1500, "stream": stream}
    with httpx.Client(base_url=client.base_url, trust_env=False, timeout=60) as other:
        if stream:
            response = other.send(other.build_request("POST", "/ask", json=body), stream=True)
            lines = response.iter_lines()  # closes the connection when it is dropped
            assert next(lines) == "event: gate"
            assert gate.arrived.acquire(timeout=60)
            response.close()
        else:
            with pytest.raises(httpx.ReadTimeout):
                other.send(other.build_request("POST", "/ask", json=body, timeout=1.0))
            assert gate.arrived.acquire(timeout=60)
    wait_until(lambda: any(one.cancelled for one in tiny_rag.engine.running))
    gate.open.release(1)  # the pass under way is the last one
    assert tiny_rag.engine.wait_idle(60)
    gate.open.release(10_000)
    assert ask(client, max_tokens=1).status_code == 200


def test_retrieve_is_the_lookup_alone(client: httpx.Client, tiny_rag: SpecRAG) -> None:
    response = client.post("/retrieve", json={"question": QUESTION, "k": 2})
    assert response.status_code == 200
    found = response.json()
    streamed = dict(parsed(ask(client, mode="always", k=2, stream=True).text))
    assert found["passages"] == streamed["passages"]["passages"]
    assert (found["index"], found["index_version"]) == (
        "tiny-docs",
        streamed["done"]["index_version"],
    )


def test_filters_choose_documents(client: httpx.Client) -> None:
    for route in ("/retrieve", "/gate", "/ask"):
        body: dict[str, Any] = {"question": QUESTION, "filters": {"document": "sky.md"}}
        body |= {"mode": "always"} if route != "/retrieve" else {}
        body |= {"return_passages": True} if route == "/ask" else {}
        found = client.post(route, json=body).json()["passages"]
        assert {one["document"] for one in found} == {"sky.md"}
    found = problem(client.post("/retrieve", json={"question": "q", "filters": {"yaer": 1}}), 422)
    assert "yaer" in found["detail"]


def test_the_decision_alone(client: httpx.Client, tiny_rag: SpecRAG) -> None:
    for mode in MODES:
        found = client.post("/gate", json={"question": QUESTION, "mode": mode}).json()
        decision, passages = tiny_rag.explain(QUESTION, mode=mode)
        assert found["gate"] == decision.to_dict()
        assert len(found["passages"]) == len(passages)
    assert tiny_rag.engine.wait_idle(60)


def test_a_conversation_changes_the_answer(client: httpx.Client, tiny_rag: SpecRAG) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    for mode in ("never", "always"):
        plain = ask(client, mode=mode).json()
        later = ask(client, mode=mode, history=history).json()
        told = ask(client, mode=mode, system_prompt="Be brief.").json()
        assert later["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]
        assert told["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]
        expected = tiny_rag.ask(QUESTION, mode=mode, history=history)
        assert later["answer"] == expected.text
    wrong = [{"role": "system", "content": "x"}]
    problem(ask(client, history=wrong), 422)
