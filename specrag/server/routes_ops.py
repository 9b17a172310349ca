"""`GET /healthz`, `GET /readyz` and `GET /metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from specrag.errors import EngineClosedError, QueueFullError
from specrag.server.access import needs
from specrag.server.problems import responses
from specrag.server.schemas import HealthResponse, ReadyResponse
from specrag.server.state import Metrics, Rag

router = APIRouter()


@router.get("/healthz")
async def healthz(request: Request, rag: Rag) -> HealthResponse:
    """Tells that the server is alive, and what it serves; answers while a question is answered."""
    index = rag.retriever
    return HealthResponse(
        status="ok",
        version=request.app.version,
        pipeline=rag.name,
        model=rag.generator.target.name,
        index=index.name if index else "",
        index_version=index.index_version if index else "",
    )


@router.get("/readyz", responses=responses(429, 503))
async def readyz(rag: Rag) -> ReadyResponse:
    """Tells whether a question would be taken now."""
    engine = rag.engine
    if engine.is_closed:
        raise EngineClosedError("the server is shutting down")
    if engine.num_waiting >= engine.limits.max_waiting:
        raise QueueFullError(f"{engine.num_waiting} requests are waiting already")
    return ReadyResponse(status="ready", running=engine.num_running, waiting=engine.num_waiting)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **responses(401)},
    dependencies=[Depends(needs("read"))],
)
async def metrics(counted: Metrics) -> Response:
    """Gives figures in the format of Prometheus."""
    return Response(counted.text(), media_type=CONTENT_TYPE_LATEST)
