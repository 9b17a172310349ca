"""Instructions that a target makes up: what it expects of its users, sampled from itself.

The idea of Magpie (Xu et al., 2024): a chat model that reads a chat up to where a user's message
begins goes on with such a message.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.noise import derived_seed
from specrag.decoding.row import DecodingRequest
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError, InputError
from specrag.models.tokenizer import Tokenizer
from specrag.training.block_file import BlockFile
from specrag.training.chat_turns import ChatTurns, chat_turns, special_token_ids
from specrag.training.corpus_settings import CorpusSettings
from specrag.training.full_batches import decode_all
from specrag.training.prompts import TrainingPrompt, choose

KIND = "own"
_FIRST_SEED = 1 << 32
"""Attempts draw behind the numbers of all answers, so that no two share their draws."""
_MAX_ATTEMPTS = 8
_MIN_TOKENS = 4
_MAX_REPEATED = 0.5


def own_instructions(
    generator: SpeculativeGenerator,
    settings: CorpusSettings,
    file: BlockFile,
    excluded: Collection[str],
    on_tokens: Callable[[int, int], None],
) -> tuple[list[TrainingPrompt], int]:
    """Returns the target's own instructions, sampled as far as the file does not hold them.

    An attempt that did not end by itself, is very short, says one token over and over, or does
    not read as text is dropped, as are repeated and excluded ones.

    Args:
        generator: Whose target makes them up.
        settings: How many, and how.
        file: Keeps each attempt.
        excluded: ``normalised`` texts that must not be used.
        on_tokens: Told how many tokens and attempts were added.

    Returns:
        At most ``num_own`` instructions, and the number of attempts. There are fewer when eight
        times as many attempts did not give enough.

    Raises:
        ConfigError: The target's chat format has no user's turn to begin.
        InputError: None of the attempts can be used.
    """
    turns = chat_turns(generator.tokenizer)
    if not turns.user_prefix:
        raise ConfigError(
            "own instructions need a chat format with something before a user's message",
            hint="give --prompts instead of --own",
        )
    file.resume()
    attempts = [_text_of(row, place) for place, row in file.rows()]
    while True:
        kept = choose([TrainingPrompt(text, KIND) for text in attempts if text], excluded).prompts
        if len(kept) >= settings.num_own or len(attempts) >= settings.num_own * _MAX_ATTEMPTS:
            break
        numbers = range(len(attempts), len(attempts) + file.block_rows)
        requests = [_request(turns, settings, number) for number in numbers]
        found = decode_all(generator, requests, settings.batch_size, on_tokens)
        rows = [_attempt(generator.tokenizer, turns, one) for one in found]
        file.append([json.dumps(row, ensure_ascii=False) for row in rows])
        attempts += ["" if row["problem"] else row["text"] for row in rows]
    if settings.num_own and not kept:
        raise InputError(
            f"none of {len(attempts)} attempts of the target gave an instruction of its own",
            hint=f"see {str(file.path)!r} for what it said, and give --prompts instead of --own",
        )
    return list(kept[: settings.num_own]), len(attempts)


def problem_of(tokenizer: Tokenizer, token_ids: Sequence[int], text: str) -> str:
    """Returns why an instruction cannot be used; empty when it can.

    Args:
        tokenizer: The target's.
        token_ids: Of the instruction, without the token that ends it.
        text: The same as text.
    """
    if len(token_ids) < _MIN_TOKENS or not text:
        return "short"
    if max(Counter(token_ids).values()) > _MAX_REPEATED * len(token_ids):
        return "repeats itself"
    # A mark in the text would be read as the end of the message.
    if "\ufffd" in text or special_token_ids(tokenizer) & set(tokenizer.encode(text)):
        return "no text"
    return ""


def _request(turns: ChatTurns, settings: CorpusSettings, number: int) -> DecodingRequest:
    ends = () if turns.user_end is None else (turns.user_end,)
    params = SamplingParams(
        temperature=settings.own_temperature,
        max_tokens=settings.max_own_tokens,
        stop=() if ends else (turns.user_end_text,),
        stop_token_ids=ends,
        seed=derived_seed(settings.seed, _FIRST_SEED + number),
    )
    return DecodingRequest(turns.user_prefix, params)


def _attempt(tokenizer: Tokenizer, turns: ChatTurns, found: Generation) -> dict[str, Any]:
    by_token = turns.user_end is not None
    ended = found.finish_reason == "stop"
    if by_token:
        # The model's own end tokens end a row as well, but not a user's message.
        ended = found.token_ids[-1] == turns.user_end
    said = found.token_ids[:-1] if by_token and ended else found.token_ids
    text = found.text.strip()
    problem = problem_of(tokenizer, said, text) if ended else "does not end"
    return {"text": text, "problem": problem}


def _text_of(row: Mapping[str, Any], place: str) -> str:
    text, problem = row.get("text"), row.get("problem")
    if not isinstance(text, str) or not isinstance(problem, str):
        raise InputError(
            f"{place} is no instruction of a target's own: {row!r:.80}",
            hint="remove the file, or name another --out",
        )
    return "" if problem else text
