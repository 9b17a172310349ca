"""`POST /ask`."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from specrag.server.problems import responses
from specrag.server.schemas import AskRequest, AskResponse
from specrag.server.state import Rag

router = APIRouter()


@router.post("/ask", response_model=AskResponse, responses=responses(400, 422, 429, 500))
async def ask(request: AskRequest, rag: Rag) -> JSONResponse:
    """Answers a question from the documents, with citations.

    Questions that arrive together are answered together.
    """
    answer = await rag.aask(
        request.question,
        mode=request.mode,
        k=request.k,
        params=request.sampling(rag.params),
    )
    return JSONResponse(answer.to_dict(), headers={"X-Request-Id": answer.request_id})
