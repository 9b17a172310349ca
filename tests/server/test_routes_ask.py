from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from specrag.decoding.engine_limits import EngineLimits
from specrag.decoding.sampling import SamplingParams
from specrag.gate.policy import GateDecision
from specrag.rag.build import SpecRAG
from specrag.rag.config import MODES
from specrag.rag.events import Event
from specrag.rag.question import Chat
from specrag.retrieval.filters import Filter
from specrag.server.app import create_app
from specrag.server.schemas import MAX_QUESTION_LENGTH, AskRequest, AskResponse
from specrag.server.settings import ServerSettings

QUESTION = "Who sings in the sea?"
Serve = Callable[[FastAPI], AbstractContextManager[httpx.Client]]


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: answer[key] for key in answer if key not in ("timings", "request_id")}


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = response.json()
    assert content["status"] == status
    assert content["type"] == "about:blank"
    assert content["title"]
    return content


def ask(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/ask", json={"question": QUESTION, **fields})


@pytest.mark.parametrize("mode", [None, *MODES])
def test_the_answer_is_that_of_the_library(
    mode: str | None, client: httpx.Client, tiny_rag: SpecRAG
) -> None:
    response = ask(client) if mode is None else ask(client, mode=mode)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    expected = tiny_rag.ask(QUESTION, mode=mode).to_dict()
    assert without_times(answer) == without_times(expected)
    assert list(answer) == list(expected)
    assert set(answer["timings"]) == set(expected["timings"])
    assert response.headers["x-request-id"] == answer["request_id"]


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"temperature": 1, "seed": 3}, {"temperature": 1.0, "seed": 3}),
        (
            {"temperature": 2.0, "seed": 3, "top_p": 0.5, "top_k": 9},
            {"temperature": 2.0, "seed": 3, "top_p": 0.5, "top_k": 9},
        ),
        ({"stop": ["e", "xyz"]}, {"stop": ("e", "xyz")}),
        ({"temperature": None, "stop": None, "k": None}, {}),
    ],
)
def test_sampling_fields_override_the_pipeline(
    fields: dict[str, Any], params: dict[str, Any], client: httpx.Client, tiny_rag: SpecRAG
) -> None:
    answer = ask(client, mode="always", **fields).json()
    expected = tiny_rag.ask(
        QUESTION, mode="always", params=dataclasses.replace(tiny_rag.params, **params)
    )
    assert without_times(answer) == without_times(expected.to_dict())


def test_every_field_is_passed_on(tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "seed": 1,
    }
    defaults = SamplingParams(repetition_penalty=1.3, min_p=0.1)
    monkeypatch.setattr(tiny_rag, "params", defaults)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    request = AskRequest(
        question="q",
        mode="never",
        k=2,
        stop=["x"],
        filters={"title": ["a", "b"]},
        system_prompt="Be kind.",
        history=turns,  # type: ignore[arg-type]
        **fields,
    )
    options = request.options(tiny_rag)
    assert options["params"] == SamplingParams(
        repetition_penalty=1.3, min_p=0.1, stop=("x",), **fields
    )
    assert options["where"] == Filter.of({"title": ["a", "b"]})
    question = tiny_rag.question("q", **options)
    assert question.chat == Chat("Be kind.", tuple(turns))
    assert (question.mode, question.k) == ("never", 2)
    plain = tiny_rag.question("q", **AskRequest(question="q").options(tiny_rag))
    assert plain == tiny_rag.question("q")
    shared = {field.name for field in dataclasses.fields(SamplingParams)}
    assert shared & set(AskRequest.model_fields) == {*fields, "stop"}


def test_k_is_the_number_of_passages(client: httpx.Client) -> None:
    found = [
        ask(client, mode="always", k=k, max_tokens=1).json()["usage"]["context_tokens"]
        for k in (1, 3)
    ]
    assert 0 < found[0] < found[1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"{", "Expecting property name"), (b"", "the body"), (b'{"question": "x"', "delimiter")],
)
def test_a_body_that_is_not_json(content: bytes, reason: str, client: httpx.Client) -> None:
    response = client.post("/ask", content=content, headers={"content-type": "application/json"})
    found = problem(response, 400 if content else 422)
    assert reason in found["detail"] or not content
    assert "Content-Type: application/json" in found["hint"]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe{", b'{"question": "x", "seed": ' + b"9" * 5000 + b"}"]
)
def test_a_body_that_cannot_be_parsed(content: bytes, client: httpx.Client) -> None:
    response = client.post("/ask", content=content, headers={"content-type": "application/json"})
    problem(response, 400)


@pytest.mark.parametrize(
    "options",
    [
        {"data": {"question": "x"}},
        {"content": b'{"question": "x"}', "headers": {"content-type": "text/plain"}},
        {"json": ["x"]},
        {"json": "x"},
        {"json": None},
    ],
)
def test_a_body_that_is_no_json_object(options: dict[str, Any], client: httpx.Client) -> None:
    found = problem(client.post("/ask", **options), 422)
    assert found["errors"][0]["field"] == "body"
    assert "Content-Type: application/json" in found["hint"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"question": None}, "question"),
        ({"question": 5}, "question"),
        ({"question": ""}, "question"),
        ({"question": "x" * (MAX_QUESTION_LENGTH + 1)}, "question"),
        ({"mode": 1}, "mode"),
        ({"k": "3"}, "k"),
        ({"k": 0}, "k"),
        ({"k": 51}, "k"),
        ({"k": True}, "k"),
        ({"k": 2.0}, "k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 8193}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": [1]}, "top_p"),
        ({"top_k": {}}, "top_k"),
        ({"seed": 1.5}, "seed"),
        ({"stop": "x"}, "stop"),
        ({"stop": ["x", 1]}, "stop.1"),
        ({"streem": True}, "streem"),
        ({"qestion": "x"}, "qestion"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(
    fields: dict[str, Any], field: str, client: httpx.Client
) -> None:
    found = problem(ask(client, **fields), 422)
    assert [error["field"] for error in found["errors"]] == [field]
    assert found["errors"][0]["message"]
    assert found["detail"].startswith(f"{field}: ")


def test_all_bad_fields_are_named(client: httpx.Client) -> None:
    found = problem(client.post("/ask", json={"k": "3", "x": 1}), 422)
    assert {error["field"] for error in found["errors"]} == {"question", "k", "x"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_refused(number: str, client: httpx.Client) -> None:
    body = f'{{"question": "q", "temperature": {number}}}'
    response = client.post("/ask", content=body, headers={"content-type": "application/json"})
    assert problem(response, 422)["errors"][0]["field"] == "temperature"


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"question": " \n "}, "the question is blank"),
        ({"mode": "allways"}, "unknown mode 'allways'; did you mean 'always'?"),
        ({"temperature": -1}, "temperature must be 0 (greedy) or more, got -1"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"stop": [""]}, "stop must be texts that are not empty"),
        ({"question": "word " * 1599, "mode": "never"}, ""),
    ],
)
def test_what_the_library_refuses_is_told_in_its_words(
    fields: dict[str, Any], detail: str, client: httpx.Client
) -> None:
    found = problem(ask(client, **fields), 422)
    assert detail in found["detail"]
    assert found["detail"]
    assert "errors" not in found


def test_the_hint_is_told_too(client: httpx.Client) -> None:
    assert problem(ask(client, question=" "), 422)["hint"] == "ask something"


def test_a_question_may_hold_any_characters(client: httpx.Client, tiny_rag: SpecRAG) -> None:
    question = 'Who \x00 \u202e sings 🐋 ‘there’ \\ "in" {question} the sea?'
    answer = ask(client, question=question, max_tokens=4).json()
    expected = tiny_rag.ask(
        question, params=dataclasses.replace(tiny_rag.params, max_tokens=4)
    ).to_dict()
    assert without_times(answer) == without_times(expected)


def test_a_lone_surrogate_is_refused(client: httpx.Client) -> None:
    body = b'{"question": "\\ud800"}'
    response = client.post("/ask", content=body, headers={"content-type": "application/json"})
    assert problem(response, 422)["errors"][0]["field"] == "question"


def test_the_longest_question_is_let_through(client: httpx.Client) -> None:
    # It does not fit the toy's context, which the library says and not the schema.
    found = problem(ask(client, question="x" * MAX_QUESTION_LENGTH), 422)
    assert "errors" not in found


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/ask"), ("PUT", "/ask"), ("POST", "/healthz")]
)
def test_a_wrong_method_is_refused(method: str, path: str, client: httpx.Client) -> None:
    response = client.request(method, path)
    problem(response, 405)
    assert response.headers["allow"] == ("POST" if path == "/ask" else "GET")


def test_an_unknown_route_is_not_found(client: httpx.Client) -> None:
    assert problem(client.get("/aks"), 404)["title"] == "Not Found"


def test_questions_that_arrive_together_get_their_own_answers(
    client: httpx.Client, tiny_rag: SpecRAG
) -> None:
    questions = [
        f"Who {verb} in the {place}?" for verb in ("sings", "digs") for place in ("sea", "sky")
    ]
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = list(pool.map(lambda text: ask(client, question=text).json(), questions))
    for text, answer in zip(questions, answers, strict=True):
        assert without_times(answer) == without_times(tiny_rag.ask(text).to_dict())
    assert len({answer["request_id"] for answer in answers}) == len(questions)
    assert len({answer["answer"] for answer in answers}) > 1


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tiny_rag: SpecRAG) -> Iterator[threading.Event]:
    """Keeps every question unanswered until the event is set."""
    release = threading.Event()
    original = tiny_rag.astream

    async def waiting(*args: Any, **kwargs: Any) -> AsyncGenerator[Event, None]:
        while not release.is_set():
            await asyncio.sleep(0.01)
        async for event in original(*args, **kwargs):
            yield event

    monkeypatch.setattr(tiny_rag, "astream", waiting)
    yield release
    release.set()


def test_the_health_check_answers_while_questions_wait(
    client: httpx.Client, held: threading.Event
) -> None:
    num_questions = 45  # more than there are worker threads
    limits = httpx.Limits(max_connections=None)
    with (
        httpx.Client(base_url=client.base_url, limits=limits, timeout=60, trust_env=False) as other,
        ThreadPoolExecutor(num_questions) as pool,
    ):
        waiting = [pool.submit(ask, other, max_tokens=1) for _ in range(num_questions)]
        for _ in range(5):
            assert client.get("/healthz").status_code == 200
        assert not any(future.done() for future in waiting)
        held.set()
        assert {future.result().status_code for future in waiting} == {200}


def test_a_full_queue_asks_to_come_again(
    client: httpx.Client, tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    forward = tiny_rag.generator.target.forward

    def held_up(*args: Any, **kwargs: Any) -> Any:
        assert gate.wait(60)
        return forward(*args, **kwargs)

    monkeypatch.setattr(tiny_rag.engine, "limits", EngineLimits(max_batch=1, max_waiting=2))
    monkeypatch.setattr(tiny_rag.generator.target, "forward", held_up)
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, client, mode="never") for _ in range(6)]
        done, _ = wait(asked, timeout=60, return_when=FIRST_COMPLETED)
        for future in done:
            found = problem(future.result(), 429)
            assert found["detail"] == "2 requests are waiting already"
            assert future.result().headers["Retry-After"] == "1"
        gate.set()
        statuses = Counter(future.result().status_code for future in asked)
    assert statuses.keys() == {200, 429}
    assert statuses[200] >= 3


def test_a_failure_tells_nothing_of_the_insides(
    client: httpx.Client, tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> AsyncGenerator[Event, None]:
        raise RuntimeError("secret /path")

    monkeypatch.setattr(tiny_rag, "astream", fail)
    response = ask(client)
    found = problem(response, 500)
    assert "secret" not in response.text
    assert found["detail"] == "the server failed to answer; its log says why"
    monkeypatch.undo()
    assert ask(client, max_tokens=1).status_code == 200


def calibrated(tiny_rag: SpecRAG) -> GateDecision:
    signals = tiny_rag.signals_of(QUESTION).to_dict()
    return GateDecision(True, "unsure", "Because.", 0.5, None, 0.7, signals, "abc")


def test_the_schema_is_the_shape_of_an_answer(tiny_rag: SpecRAG) -> None:
    answer = tiny_rag.ask(QUESTION, mode="always")
    for gate in (answer.gate, calibrated(tiny_rag)):
        content = dataclasses.replace(answer, gate=gate).to_dict()
        shape = AskResponse.model_validate(content)
        printed = json.loads(shape.model_dump_json(exclude_unset=True))
        assert printed == content
        assert list(printed) == list(content)


def test_the_openapi_document_describes_ask(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    route = document["paths"]["/ask"]["post"]
    statuses = {"200", "400", "401", "413", "422", "429", "500", "503", "504"}
    assert set(route["responses"]) == statuses
    success = route["responses"]["200"]["content"]["application/json"]["schema"]
    assert success == {"$ref": "#/components/schemas/AskResponse"}
    failure = route["responses"]["422"]["content"]
    assert set(failure) == {"application/problem+json"}
    assert "detail" in failure["application/problem+json"]["schema"]["properties"]
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    fields = schemas["AskRequest"]
    assert fields["additionalProperties"] is False
    assert fields["required"] == ["question"]
    assert fields["properties"]["mode"]["anyOf"][0]["enum"] == list(MODES)


@pytest.mark.embedded
def test_the_embedded_models_answer_over_http(
    embedded_target_path: Path,
    embedded_encoder_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Serve,
) -> None:
    (tmp_path / "models").symlink_to(embedded_target_path.parent, target_is_directory=True)
    assert embedded_encoder_path.parent == embedded_target_path.parent
    monkeypatch.setenv("SPECRAG_HOME", str(tmp_path))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "boat.md").write_text("The boat is moored at pier 7.", encoding="utf-8")
    settings = ServerSettings(docs=str(tmp_path / "docs"))
    app = create_app(settings)  # loads by itself
    with serve(app) as client:
        response = ask(client, question="Where is the boat?", mode="always", max_tokens=5)
        answer = response.json()
        assert answer["model"] == "smollm2-135m-instruct"
        assert [found["document"] for found in answer["citations"]] == ["boat.md"]
        params = dataclasses.replace(app.state.rag.params, max_tokens=5)
        expected = app.state.rag.ask("Where is the boat?", mode="always", params=params)
        assert without_times(answer) == without_times(expected.to_dict())
        app.state.rag.retriever.close()
