"""`GET /healthz`."""

from __future__ import annotations

from fastapi import APIRouter, Request

from specrag.server.schemas import HealthResponse
from specrag.server.state import Rag

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
