"""What a benchmark has decoded so far, kept on disk prompt by prompt."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from specrag.decoding.stats import DecodingStats, DraftCounters
from specrag.evaluation.run_folder import LOCK_NAME, check_same_run, read_line, to_line
from specrag.evaluation.speed.arm import Sample
from specrag.evaluation.speed.measure import ArmFailure, DecodedPrompt, DonePrompts
from specrag.evaluation.speed.prompts import SpeedPrompt
from specrag.locking import exclusive

_LOG = logging.getLogger(__name__)
DECODED_NAME = "decoded.jsonl"


class KeptPrompts(DonePrompts):
    """The prompts that a file keeps.

    Args:
        file: Read and written.
        prompts: Of the run, in its order.
    """

    def __init__(self, file: IO[bytes], prompts: Sequence[SpeedPrompt]) -> None:
        super().__init__()
        self._file = file
        self._read(prompts)

    def keep(self, found: DecodedPrompt, failures: Sequence[ArmFailure]) -> None:
        """Keeps one prompt; it is on disk before this returns.

        Args:
            found: What the arms made of it.
            failures: Of the arms that gave up since the prompt before it.
        """
        row = {
            "id": found.prompt.id,
            "seen": asdict(found.seen),
            "samples": {arm: [asdict(one) for one in made] for arm, made in found.samples.items()},
            "failures": [asdict(failure) for failure in failures],
        }
        self._file.write(to_line(row))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, prompts: Sequence[SpeedPrompt]) -> None:
        """Takes the whole lines at the beginning, and cuts off what comes behind them."""
        self._file.seek(0)
        end = 0
        for prompt, line in zip(prompts, self._file.read().splitlines(keepends=True), strict=False):
            row = read_line(line)
            if row is None or row.get("id") != prompt.id:
                break
            samples = {arm: list(map(_sample, made)) for arm, made in row["samples"].items()}
            self.prompts.append(DecodedPrompt(prompt, _sample(row["seen"]), samples))
            self.failures += [ArmFailure(**failure) for failure in row["failures"]]
            end += len(line)
        self._file.truncate(end)
        self._file.seek(end)


@contextmanager
def kept_prompts(
    folder: Path | None,
    prompts: Sequence[SpeedPrompt],
    key: Mapping[str, Any],
    *,
    restart: bool = False,
) -> Iterator[DonePrompts]:
    """Opens what a folder keeps of a benchmark.

    Args:
        folder: Made if it does not exist; None keeps nothing.
        prompts: Of the run, in its order.
        key: All that the figures depend on.
        restart: Whether to throw away what an earlier run has left.

    Raises:
        ConfigError: The folder holds a run of other settings.
        InputError: Another process is at it, or it cannot be written to.
    """
    if folder is None:
        yield DonePrompts()
        return
    busy, hint = "another run writes to", "wait, or choose another --out"
    with exclusive(folder, LOCK_NAME, busy, hint):
        check_same_run(folder, DECODED_NAME, key, restart)
        with (folder / DECODED_NAME).open("a+b") as file:
            kept = KeptPrompts(file, prompts)
            if kept.prompts:
                _LOG.warning(
                    "%d of %d prompts were measured by an earlier run of %s; --restart measures "
                    "them anew",
                    len(kept.prompts),
                    len(prompts),
                    folder,
                )
            yield kept


def _sample(kept: Mapping[str, Any]) -> Sample:
    lists = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    return Sample(**{**kept, **lists, "stats": _stats(kept["stats"])})


def _stats(kept: Mapping[str, Any] | None) -> DecodingStats | None:
    if kept is None:
        return None
    counters = {
        name: {key: DraftCounters(**counts) for key, counts in kept[name].items()}
        for name in ("drafters", "domains")
    }
    return DecodingStats(**{**kept, **counters})
