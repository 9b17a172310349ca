"""Training: goes through a corpus for some epochs, measures held-out texts, and can be resumed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from specrag.errors import ConfigError
from specrag.training.batches import TrainingBatch, epoch_order, make_batch
from specrag.training.data import TrainingData
from specrag.training.objective import COUNT, Objective
from specrag.training.optimizer import OptimizerSettings, make_optimizers, rate_at
from specrag.training.state import load_state, read_counters, save_state

STATE = "state.safetensors"
HISTORY = "history.jsonl"


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a training runs.

    Attributes:
        epochs: How often every text is used.
        batch_tokens: Tokens of a step, padding included.
        optimizer: How weights are changed.
        evaluate_every: Steps from one look at the held-out texts to the next.
        save_seconds: Least time between two saved states.
        seed: Of the order of texts and of new weights.
    """

    epochs: float = 2.0
    batch_tokens: int = 2048
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    evaluate_every: int = 100
    save_seconds: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_tokens", "evaluate_every"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")


class Training:
    """One training in a folder, which holds all that a restart needs.

    Args:
        objective: A module that returns the ``Objective`` of a batch; what it must learn requires
            gradients.
        data: What it learns from.
        settings: How.
        folder: For states and figures.
        device: Where to compute.
        about: What else must be the same when it is gone on with; plain data.

    Attributes:
        step: Steps that are done.
        seconds: Time that they took.
    """

    def __init__(
        self,
        objective: nn.Module,
        data: TrainingData,
        settings: TrainingSettings,
        folder: Path,
        device: torch.device | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self._objective = objective
        self._data = data
        self._settings = settings
        self._folder = folder
        self._device = device or torch.device("cpu")
        self._about = dict(about or {})
        self._lengths = [len(text.token_ids) for text in data.texts]
        self._optimizers = make_optimizers(objective.named_parameters(), settings.optimizer)
        folder.mkdir(parents=True, exist_ok=True)
        self.step, self.seconds = 0, 0.0
        self._recent = Counter[str]()
        if (folder / STATE).is_file():
            self._resume()
        self._forget_later()

    @property
    def num_steps(self) -> int:
        """Steps of the whole training."""
        return len(self._order())

    def run(
        self, *, progress: bool = False, stop: Callable[[], bool] | None = None
    ) -> list[dict[str, Any]]:
        """Trains to the end, or until told to stop.

        Args:
            progress: Whether to show a bar on standard error.
            stop: Asked after each step.

        Returns:
            The history: a row each time the held-out texts were measured.
        """
        order = self._order()
        saved = started = time.perf_counter()
        before, recent = self.seconds, self._recent
        bar = tqdm(total=len(order), initial=self.step, desc="training", disable=not progress)
        with bar:
            while self.step < len(order):
                found = self._train_on(order[self.step], len(order))
                recent.update({**found.metrics, "loss": float(found.loss), "steps": 1})
                self.step += 1
                now = time.perf_counter()
                self.seconds = before + now - started
                last = self.step == len(order)
                if last or self.step % self._settings.evaluate_every == 0:
                    self._measure(recent, bar)
                    recent.clear()
                halt = stop is not None and stop()
                if last or halt or now - saved > self._settings.save_seconds:
                    self._save()
                    saved = now
                bar.update()
                if halt:
                    break
        return self.history()

    def history(self) -> list[dict[str, Any]]:
        """Returns the rows measured so far."""
        path = self._folder / HISTORY
        if not path.is_file():
            return []
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:  # the power went while it was written; it is measured again
                break
        return [row for row in rows if row["step"] <= self.step]

    def evaluate(self) -> dict[str, float]:
        """Returns the averages over the held-out texts."""
        total = Counter[str]()
        self._objective.eval()
        with torch.no_grad():
            for batch in self.held_out_batches():
                found = self._objective(batch)
                total.update(found.metrics)
                total["loss"] += float(found.loss) * found.metrics["positions"]
        self._objective.train()
        return _averages(total)

    def held_out_batches(self) -> Iterator[TrainingBatch]:
        """Yields the held-out texts, in an order that is always the same."""
        tokens = self._settings.batch_tokens
        for places in epoch_order(self._lengths, self._data.held_out, tokens, 0):
            yield self._batch(places)

    def _train_on(self, places: Sequence[int], num_steps: int) -> Objective:
        rate = rate_at(self.step, num_steps, self._settings.optimizer)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
        found: Objective = self._objective(self._batch(places))
        found.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(
            self._objective.parameters(), self._settings.optimizer.max_norm
        )
        for optimizer in self._optimizers:
            optimizer.step()
        return Objective(found.loss.detach(), found.metrics)

    def _measure(self, recent: Counter[str], bar: tqdm[Any]) -> None:
        held_out = self.evaluate()
        steps = recent.pop("steps")
        loss = recent.pop("loss") / steps
        row = {
            "step": self.step,
            "seconds": round(self.seconds, 1),
            "train": {**_averages(recent), "loss": loss},
            "held_out": held_out,
        }
        with (self._folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        bar.set_postfix_str(f"loss {loss:.3f}, held out {held_out['loss']:.3f}")

    def _order(self) -> list[list[int]]:
        """The batches of all epochs; the last epoch may be a part of one."""
        epochs, seed, batches = self._settings.epochs, self._settings.seed, []
        for epoch in range(-int(-epochs // 1)):
            order = epoch_order(
                self._lengths, self._data.train, self._settings.batch_tokens, seed + epoch
            )
            batches += order[: round(len(order) * min(1.0, epochs - epoch))]
        return batches or order[:1]

    def _batch(self, places: Sequence[int]) -> TrainingBatch:
        return make_batch(self._data.texts, self._data.store, places, self._device)

    def _save(self) -> None:
        counters = {
            "step": self.step,
            "seconds": self.seconds,
            "recent": dict(self._recent),
            "plan": self._plan(),
        }
        save_state(self._folder / STATE, self._objective, self._optimizers, counters)

    def _resume(self) -> None:
        counters = read_counters(self._folder / STATE)
        plan = self._plan()
        others = {key: value for key, value in counters["plan"].items() if plan.get(key) != value}
        if others:
            wanted = {key: plan.get(key) for key in others}
            raise ConfigError(
                f"{self._folder} holds a training with other settings or texts: {others}, not "
                f"{wanted}",
                hint="name another folder, or remove this one",
            )
        load_state(self._folder / STATE, self._objective, self._optimizers)
        self.step, self.seconds = counters["step"], counters["seconds"]
        self._recent.update(counters.get("recent", {}))

    def _forget_later(self) -> None:
        """Drops what was measured after the state that is gone on from: it will be once more."""
        path = self._folder / HISTORY
        if path.is_file():
            rows = "".join(json.dumps(row) + "\n" for row in self.history())
            path.write_text(rows, encoding="utf-8")

    def _plan(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "epochs": settings.epochs,
            "batch_tokens": settings.batch_tokens,
            "seed": settings.seed,
            "optimizer": settings.optimizer.name,
            "learning_rate": settings.optimizer.learning_rate,
            "weight_decay": settings.optimizer.weight_decay,
            "warmup": settings.optimizer.warmup,
            "max_norm": settings.optimizer.max_norm,
            **self._about,
            "features": self._data.store.identity,
            "num_texts": len(self._data.train),
            "num_tokens": sum(self._lengths[place] for place in self._data.train),
        }


def _averages(sums: Mapping[str, float]) -> dict[str, float]:
    count = sums.get("positions", 0.0)
    named = [name for name in sums if name != "positions" and not name.endswith(COUNT)]
    return {name: sums[name] / max(1.0, sums.get(name + COUNT, count)) for name in named}
