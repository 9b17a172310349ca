"""Decoding many requests in a batch that stays full: a row joins when others have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from specrag.decoding.generator import Generation, SpeculativeGenerator, result_of
from specrag.decoding.row import DecodingRequest
from specrag.decoding.session import DecodingSession

_JOIN_SHARE = 4
"""Rows join when a quarter of the batch is free: each time they do, the others wait."""


def decode_all(
    generator: SpeculativeGenerator,
    requests: Sequence[DecodingRequest],
    batch_size: int,
    on_tokens: Callable[[int, int], None],
) -> list[Generation]:
    """Decodes all requests, a batch of them at a time.

    The generator's prefix cache is not used: what it holds depends on earlier calls, and the
    result shall depend on the requests alone.

    Args:
        generator: With a drafter whose sessions can grow.
        requests: What to decode; may be none.
        batch_size: Most rows of a pass.
        on_tokens: Told after each round how many tokens and how many ended rows it added.

    Returns:
        One answer a request, in their order.

    Raises:
        InputError: A prompt is empty or leaves no room in the context.
        FixedBatchError: The drafter's sessions cannot grow.
    """
    if not requests:
        return []
    # The longest first: the cache has its full length from the start.
    order = sorted(range(len(requests)), key=lambda index: -len(requests[index].prompt_ids))
    waiting = deque(requests[index] for index in order)
    running = min(batch_size, len(waiting))
    session = DecodingSession(
        generator.target,
        generator.drafter,
        generator.tokenizer,
        [waiting.popleft() for _ in range(running)],
        generator.config,
        generator.costs,
    )
    try:
        while not session.finished:
            updates = session.step().values()
            ended = sum(update.finish_reason is not None for update in updates)
            on_tokens(sum(len(update.token_ids) for update in updates), ended)
            running -= ended
            free = batch_size - running
            if waiting and (free * _JOIN_SHARE >= batch_size or not running):
                for _ in range(min(free, len(waiting))):
                    session.add(waiting.popleft())
                    running += 1
    finally:
        session.close()
    found = {
        index: result_of(row, session.timings)
        for index, row in zip(order, session.rows, strict=True)
    }
    return [found[index] for index in range(len(requests))]
