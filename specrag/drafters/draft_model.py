"""Drafting with a model: a smaller one, of the same or of another tokenizer, guesses ahead."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from specrag.decoding.budget import PassCosts
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.level import ModelLevel
from specrag.drafters.neural.pair import DraftPair, Load, Parts, load_beside
from specrag.drafters.neural.session import DraftModelSession, DraftOptions
from specrag.drafters.shipped import shipped_head
from specrag.models.embedded import resolve
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


class DraftModelDrafter(Drafter):
    """Lets a small model decode ahead of the target.

    "Fast Inference from Transformers via Speculative Decoding" (Leviathan et al., 2023). With a
    budget without branches it drafts chains, else trees: those of ``options.shape``, or those of
    EAGLE-2, which follow the model's confidence. It chooses as the row does, with the same noise,
    and so agrees with the target whenever both have the same distribution.

    A drafter of its own makes it the second level of a cascade: the small model verifies what
    that one proposes, as the target verifies what the small model does, and drafts chains.

    A text longer than the model's context is drafted from its end: the model starts anew with
    half of its context whenever it is full. A draft is at most a quarter of the context deep.

    Args:
        model: The draft model.
        tokenizer: Its tokenizer; another one than the target's is matched token by token.
        drafter: Proposes to the draft model.
        options: How it drafts.
        name: What it is called in statistics, behind its drafter's name and ``>``; by default
            ``draft:`` and the model's name.
    """

    def __init__(
        self,
        model: TargetModel,
        tokenizer: Tokenizer,
        *,
        drafter: Drafter | None = None,
        options: DraftOptions | None = None,
        name: str | None = None,
    ) -> None:
        self._setup(lambda *_: (model, tokenizer), name or f"draft:{model.name}", drafter, options)

    def _setup(
        self,
        load: Load,
        name: str,
        drafter: Drafter | None,
        options: DraftOptions | None,
    ) -> None:
        self.name = name if drafter is None else f"{drafter.name}>{name}"
        self.levels = ()
        self.drafter = drafter
        self.options = options or DraftOptions()
        self._load = load
        self._parts: Parts | None = None
        self._pair: DraftPair | None = None

    @classmethod
    def named(
        cls,
        model: str,
        *,
        drafter: Drafter | None = None,
        options: DraftOptions | None = None,
        name: str | None = None,
    ) -> DraftModelDrafter:
        """Finds a model now, and loads it when the target is known: in its dtype, on its device.

        Args:
            model: An embedded name, a hub name, a local folder or a ``.gguf`` path; empty for the
                one that ships for the target.
            drafter: Proposes to the draft model.
            options: How it drafts.
            name: What it is called in statistics.

        Raises:
            ModelError: There is no such model.
        """
        source = resolve(model) if model else None

        def load(target: TargetModel, tokenizer: Tokenizer) -> Parts:
            found = source or resolve(str(shipped_head("draft", target).folder))
            return load_beside(found, target, tokenizer)

        made = cls.__new__(cls)
        made._setup(load, name or (f"draft:{model}" if model else "draft"), drafter, options)
        return made

    def with_drafter(self, drafter: Drafter) -> DraftModelDrafter:
        """Returns the same with a drafter of its own.

        Args:
            drafter: Proposes to the draft model.
        """
        made = copy.copy(self)
        made.drafter = drafter
        made.name = f"{drafter.name}>{self.name}"
        made._pair = None
        return made

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Loads the model where that is still to be done, and matches the tokenizers.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            costs: What a pass of the target costs; nothing depends on it.

        Raises:
            ConfigError: The tokenizers have too little in common.
            ModelError: The draft model cannot be loaded.
        """
        if self.drafter is not None:
            self.drafter.bind(target, tokenizer, costs)
            self.feature_layers = self.drafter.feature_layers
        if self._pair and self._pair.target is target and self._pair.tokenizer is tokenizer:
            return
        self._parts = self._parts or self._load(target, tokenizer)
        self._pair = DraftPair.of(target, tokenizer, self._parts)
        below = () if self.drafter is None else self.drafter.levels
        self.levels = (*below, ModelLevel(self._pair.model))
        self.device = self._pair.model.device.type

    def open(self, contexts: Sequence[DraftContext]) -> DraftModelSession:
        """Starts drafting for a batch; the prompts are read when a draft is first asked for.

        Args:
            contexts: One for each row.
        """
        assert self._pair, f"{self.name} must be bound to a target before it is opened"
        inner = None if self.drafter is None else self.drafter.open(contexts)
        return DraftModelSession(self.name, self._pair, self.options, inner, contexts)
