"""Who may do what: keys, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, HTTPException, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from specrag.server.settings import ServerSettings

Scope = Literal["read", "admin"]

_BEARER = HTTPBearer(auto_error=False, description="A key of the server.")
_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, description="A key of the server.")


def needs(scope: Scope) -> Callable[..., Coroutine[Any, Any, None]]:
    """Returns a dependency that lets a request through whose key allows what it asks for.

    Args:
        scope: ``read`` to ask, ``admin`` to change something.
    """

    async def check(
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        header: Annotated[str | None, Depends(_HEADER)],
    ) -> None:
        settings: ServerSettings = request.app.state.settings
        if not settings.has_keys:
            return
        key = bearer.credentials if bearer is not None else header or ""
        is_admin = _is_among(key, settings.api_keys)
        is_reader = _is_among(key, settings.read_keys)
        if not (is_admin or is_reader):
            raise HTTPException(
                401, "a key of this server is needed", headers={"WWW-Authenticate": "Bearer"}
            )
        if scope == "admin" and not is_admin:
            raise HTTPException(403, "this key may ask, and change nothing")

    return check


def _is_among(key: str, known: Sequence[SecretStr]) -> bool:
    """Takes the same time whatever the key is: digests of one length, and none is left out."""
    digest = hashlib.sha256(key.encode()).digest()
    found = False
    for one in known:
        other = hashlib.sha256(one.get_secret_value().encode()).digest()
        found |= hmac.compare_digest(digest, other)
    return found and bool(key)
