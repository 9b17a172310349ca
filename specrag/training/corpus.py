"""generate_corpus: a target answers prompts and instructions of its own, to train heads on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.noise import derived_seed
from specrag.decoding.row import DecodingRequest
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError, InputError
from specrag.locking import exclusive
from specrag.training.block_file import BlockFile
from specrag.training.corpus_meta import check_meta, digest_of
from specrag.training.corpus_report import CorpusCounts, CorpusReport, PromptCounts
from specrag.training.corpus_row import CorpusRow
from specrag.training.corpus_settings import CorpusSettings
from specrag.training.full_batches import decode_all
from specrag.training.instructions import own_instructions
from specrag.training.prompts import PromptChoice, TrainingPrompt, choose

_FREE = {"num_rows"}
"""Settings that a later run may change: rows are numbered, and more of them begin alike."""


def generate_corpus(
    generator: SpeculativeGenerator,
    prompts: Sequence[TrainingPrompt],
    settings: CorpusSettings,
    out: Path,
    *,
    excluded: Collection[str] = (),
    progress: bool = False,
) -> CorpusReport:
    """Lets the target answer prompts and writes a row an answer; goes on where an earlier run was.

    Heads trained on what the target itself says learn what they will have to guess, which text of
    other authors is not (Zhou et al., 2024, "DistillSpec"; EAGLE-3's data is made this way too).
    Each row has a seed of its own, and rows are written in blocks that are decoded together: the
    file is the same whether or not a run was cut off in between.

    Args:
        generator: Its target answers; its drafter only makes that faster.
        prompts: From files; may be none when ``settings`` ask for own instructions.
        settings: How much, and how.
        out: The file, JSON lines. Beside it lie its settings (``.meta.json``) and the
            instructions of the target's own (``.own``).
        excluded: ``normalised`` prompts that must never be used.
        progress: Whether to show a bar of tokens on standard error.

    Raises:
        ConfigError: There is nothing to answer, or more rows are asked for than can be.
        InputError: The file was begun in another way, another run writes it, or it cannot be
            read or written.
    """
    if out.suffix != ".jsonl":
        raise ConfigError(
            f"a corpus is written as JSON lines, got {str(out)!r}", hint="name it such as a.jsonl"
        )
    given = choose(prompts, excluded)
    if not given.prompts and not settings.num_own:
        raise ConfigError(
            f"there is nothing to answer: {_left_out(given)}",
            hint="give --prompts, or --own for instructions of the target's own",
        )
    busy = "another run writes a corpus of this name in"
    hint = "wait for it, or name another --out"
    with exclusive(out.parent, f".{out.name}.lock", busy, hint), _bar(progress) as bar:
        check_meta(out, _meta(generator, given, settings, excluded))
        return _Run(generator, settings, out, excluded, bar).complete(given)


class _Run:
    """One run over a locked file."""

    def __init__(
        self,
        generator: SpeculativeGenerator,
        settings: CorpusSettings,
        out: Path,
        excluded: Collection[str],
        bar: tqdm[Any],
    ) -> None:
        self._generator = generator
        self._settings = settings
        self._out = out
        self._excluded = excluded
        self._bar = bar

    def complete(self, given: PromptChoice) -> CorpusReport:
        """Adds what is missing, and reports."""
        own, num_attempts = self._own()
        choice = choose([*given.prompts, *own], ())  # files may hold what the target made up
        prompts = self._fitting(choice.prompts)
        if not prompts:
            raise InputError(
                f"all {len(choice.prompts)} prompts are too long",
                hint=f"at most {self._longest} tokens fit, chat format included",
            )
        # Shuffled, so that the beginning of a corpus is a fair sample of all of it.
        random.Random(self._settings.seed).shuffle(prompts)
        total = self._settings.total_rows(len(prompts))
        counts = self._known(total)
        num_rows, num_tokens = counts.num_rows, counts.num_tokens
        started = time.perf_counter()
        for row in self._new_rows(prompts, num_rows, total):
            counts.add(row)
        seconds = time.perf_counter() - started
        return CorpusReport(
            self._out,
            counts,
            PromptCounts(
                len(prompts),
                len(own),
                num_attempts,
                given.num_excluded,
                given.num_repeated + choice.num_repeated,
                len(choice.prompts) - len(prompts),
            ),
            counts.num_rows - num_rows,
            counts.num_tokens - num_tokens,
            seconds,
        )

    @property
    def _longest(self) -> int:
        """Most tokens of a prompt."""
        room = self._generator.target.max_context - self._settings.max_tokens
        return max(0, min(self._settings.max_prompt_tokens, room))

    def _own(self) -> tuple[list[TrainingPrompt], int]:
        settings = self._settings
        if not settings.num_own:
            return [], 0
        file = BlockFile(self._out.with_name(f"{self._out.name}.own"), settings.block_rows)
        told = self._told("instructions", 0)
        return own_instructions(self._generator, settings, file, self._excluded, told)

    def _fitting(self, prompts: Sequence[TrainingPrompt]) -> list[TrainingPrompt]:
        return [prompt for prompt in prompts if len(self._ids(prompt)) <= self._longest]

    def _ids(self, prompt: TrainingPrompt) -> list[int]:
        return self._generator.tokenizer.encode_chat([{"role": "user", "content": prompt.text}])

    def _file(self) -> BlockFile:
        return BlockFile(self._out, self._settings.block_rows)

    def _known(self, total: int) -> CorpusCounts:
        """Counts the rows of earlier runs."""
        counts = CorpusCounts()
        file = self._file()
        file.resume(total)
        for place, value in file.rows():
            counts.add(CorpusRow.parse(value, place, self._generator.target.vocab_size))
        return counts

    def _new_rows(
        self, prompts: Sequence[TrainingPrompt], first: int, total: int
    ) -> Iterator[CorpusRow]:
        """Yields the rows from the first that is missing, each when its block is written."""
        file = self._file()
        told = self._told("answers", total, first)
        for start in range(first, total, file.block_rows):
            numbers = range(start, min(start + file.block_rows, total))
            block = [prompts[number % len(prompts)] for number in numbers]
            params = [self._params(number, len(prompts)) for number in numbers]
            requests = [
                DecodingRequest(tuple(self._ids(prompt)), one)
                for prompt, one in zip(block, params, strict=True)
            ]
            found = decode_all(self._generator, requests, self._settings.batch_size, told)
            rows = [
                CorpusRow(
                    prompt.kind,
                    one.temperature,
                    prompt.text,
                    answer.token_ids,
                    answer.finish_reason == "stop",
                    one.seed,
                )
                for prompt, one, answer in zip(block, params, found, strict=True)
            ]
            file.append([row.to_json() for row in rows])
            yield from rows

    def _params(self, number: int, num_prompts: int) -> SamplingParams:
        settings = self._settings
        return SamplingParams(
            temperature=settings.temperature_of(number, num_prompts),
            max_tokens=settings.max_tokens,
            seed=derived_seed(settings.seed, number),
        )

    def _told(self, what: str, total: int, done: int = 0) -> Callable[[int, int], None]:
        """Makes the bar count tokens, and rows beside them."""
        self._bar.set_description(what)

        def told(num_tokens: int, num_rows: int) -> None:
            nonlocal done
            done += num_rows
            self._bar.set_postfix_str(f"{done}/{total} rows" if total else f"{done} rows", False)
            self._bar.update(num_tokens)

        return told


@contextmanager
def _bar(progress: bool) -> Iterator[tqdm[Any]]:
    with tqdm(unit=" tokens", disable=not progress) as bar:
        yield bar


def _meta(
    generator: SpeculativeGenerator,
    given: PromptChoice,
    settings: CorpusSettings,
    excluded: Collection[str],
) -> dict[str, Any]:
    """Returns all that decides on the rows; the drafter does not, nor does their number."""
    target = generator.target
    chosen = {name: value for name, value in asdict(settings).items() if name not in _FREE}
    return {
        "target": target.fingerprint,
        "dtype": str(target.dtype).removeprefix("torch."),
        "tokenizer": generator.tokenizer.fingerprint,
        **chosen,
        "temperatures": list(settings.temperatures),
        "prompts": digest_of(f"{one.kind}\n{one.text}" for one in given.prompts),
        "excluded": digest_of(sorted(excluded)),
    }


def _left_out(given: PromptChoice) -> str:
    if given.num_excluded:
        return f"all {given.num_excluded} prompts stand in excluded files"
    return "there are no prompts"
