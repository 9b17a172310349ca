"""`POST /ask`."""

from __future__ import annotations

from functools import partial

from anyio import to_thread
from fastapi import APIRouter
from fastapi.responses import JSONResponse

from specrag.server.problems import responses
from specrag.server.schemas import AskRequest, AskResponse
from specrag.server.state import Rag

router = APIRouter()


@router.post("/ask", response_model=AskResponse, responses=responses(400, 422, 500))
async def ask(request: AskRequest, rag: Rag) -> JSONResponse:
    """Answers a question from the documents, with citations.

    Questions that arrive together are answered one after the other.
    """
    work = partial(
        rag.ask,
        request.question,
        mode=request.mode,
        k=request.k,
        params=request.sampling(rag.params),
    )
    answer = await to_thread.run_sync(work)
    return JSONResponse(answer.to_dict(), headers={"X-Request-Id": answer.request_id})
