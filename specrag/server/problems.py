"""Errors over HTTP: RFC 9457 problem details, without anything of the server's insides."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from specrag.errors import (
    ConfigError,
    DeadlineError,
    EngineClosedError,
    InputError,
    QueueFullError,
    SpecragError,
)
from specrag.server.disconnect import ClientGoneError
from specrag.server.schemas import Problem

_LOG = logging.getLogger(__name__)
RETRY_AFTER_S = 1
_CLIENT_GONE = 499  # as nginx logs it
_FAILURE = "the server failed to answer; its log says why"
MEDIA_TYPE = "application/problem+json"
_STATUSES: dict[type[SpecragError], int] = {
    ConfigError: 422,
    InputError: 422,
    QueueFullError: 429,
    EngineClosedError: 503,
    DeadlineError: 504,
}
"""What a client can mend, or wait for; of all else it learns nothing."""
_BODY_HINT = "send a JSON object with the header Content-Type: application/json"


def install(app: FastAPI) -> None:
    """Makes an application answer every error with a problem.

    Args:
        app: Is changed.
    """
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    for kind in _STATUSES:
        app.add_exception_handler(kind, _on_known_error)
    app.add_exception_handler(ClientGoneError, _on_gone)
    # Also errors of specrag that no client can mend. The server logs them; a client learns nothing.
    app.add_exception_handler(Exception, _on_failure)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describes errors for the OpenAPI document.

    Args:
        *statuses: Those that a route can answer with.
    """
    content = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def problem_of(error: Exception) -> dict[str, Any]:
    """Returns an error that comes when the status has been sent, and logs it if it is the server's.

    Args:
        error: What happened.
    """
    status = _status_of(error)
    if status is None or not isinstance(error, SpecragError):
        _LOG.error("an answer failed on its way", exc_info=error)
        return _content(500, _FAILURE)
    return _content(status, error.message, error.hint)


def response_of(
    status: int,
    detail: str,
    *,
    hint: str | None = None,
    errors: list[dict[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Returns an error as it is sent.

    Args:
        status: Of HTTP.
        detail: What was wrong.
        hint: What to do next.
        errors: For each field that cannot be used its name and a message.
        headers: To send with it.
    """
    content = _content(status, detail, hint, errors)
    return JSONResponse(content, status, headers, media_type=MEDIA_TYPE)


def _content(
    status: int,
    detail: str,
    hint: str | None = None,
    errors: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    problem = Problem(title=title, status=status, detail=detail, hint=hint, errors=errors)
    return problem.model_dump(exclude_none=True)


def _status_of(error: Exception) -> int | None:
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), None)


async def _on_validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError), "registered for this type alone"
    found = error.errors()
    if any(item["type"] == "json_invalid" for item in found):
        reason = found[0].get("ctx", {}).get("error", "cannot be parsed")
        return response_of(400, f"the body is not valid JSON: {reason}", hint=_BODY_HINT)
    # Only place and message are passed on: the input may be long, or no JSON at all (NaN).
    errors = [{"field": _field(item["loc"]), "message": item["msg"]} for item in found]
    detail = "; ".join(f"{item['field']}: {item['message']}" for item in errors)
    hint = _BODY_HINT if any(item["field"] == "body" for item in errors) else None
    return response_of(422, detail, hint=hint, errors=errors)


def _field(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location[1:] or location)


async def _on_http_exception(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException), "registered for this type alone"
    return response_of(error.status_code, str(error.detail), headers=error.headers)


async def _on_known_error(_request: Request, error: Exception) -> JSONResponse:
    status = _status_of(error)
    assert status is not None, "registered for these types alone"
    assert isinstance(error, SpecragError), "registered for these types alone"
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 429 else None
    return response_of(status, error.message, hint=error.hint, headers=headers)


async def _on_failure(_request: Request, _error: Exception) -> JSONResponse:
    # The server drops the connection after a failure, so a client must not use it again.
    headers = {"Connection": "close"}
    return response_of(500, _FAILURE, headers=headers)


async def _on_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)  # for the log; nobody reads it
