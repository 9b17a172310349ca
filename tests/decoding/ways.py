"""Ways to draft for a tiny target: one of each kind, and some that mean ill."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.noise import Stream, draw
from specrag.decoding.sampling import TokenSampler
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.cascade import cascade
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.domain import TEXT
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.drafters.neural.session import DraftOptions
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.drafters.selector import SelectorDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target
from specrag.models.tokenizer import Tokenizer
from tests.decoding.scripts import TOKENIZER, VOCAB, target

SHAPE = TreeShape.from_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])
Guess = Callable[[TokenSampler, tuple[int, ...], DraftBudget], DraftTree]
"""How the row chooses, its text and the budget to a draft."""


@cache
def draft_model(near: float) -> HuggingFaceTarget:
    """The target with its weights shaken by that share, so that it agrees at times."""
    made = tiny_target(seed=1, vocab_size=VOCAB, peakedness=2.0)
    made.model.double()
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in made.model.parameters():
            shake = torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
            weight.add_(near * weight.std() * shake)
    made.name = f"near-{near}"
    return made


def model_drafter(near: float = 0.2, shape: TreeShape | None = None) -> DraftModelDrafter:
    return DraftModelDrafter(draft_model(near), TOKENIZER, options=DraftOptions(shape, 0.0))


@cache
def renumbered_tokenizer() -> Tokenizer:
    """The target's letters, numbered from behind."""
    words = TOKENIZER.backend.get_vocab()
    turned = {word: VOCAB - 1 - token for word, token in words.items()}
    backend = RustTokenizer(WordLevel(turned, unk_token=" "))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    marks = {"eos_token": "<eos>", "additional_special_tokens": ["<s>", "<u>", "<a>"]}
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, **marks))


@cache
def renumbered_model() -> HuggingFaceTarget:
    made = tiny_target(seed=1, vocab_size=VOCAB, peakedness=2.0)
    made.model.double()
    made.model.load_state_dict(draft_model(0.2).model.state_dict())
    with torch.no_grad():
        for layer in (made.model.get_input_embeddings(), made.model.get_output_embeddings()):
            layer.weight.copy_(layer.weight.flip(0))
    return made


def other_drafter() -> DraftModelDrafter:
    return DraftModelDrafter(
        renumbered_model(), renumbered_tokenizer(), options=DraftOptions(min_confidence=0.0)
    )


class Restless(SelectorDrafter):
    """Changes its drafter between any two rounds, by chance."""

    def __init__(self, *arms: Drafter) -> None:
        super().__init__({TEXT: arms[0]}, arms[1:])
        self._rng = random.Random(3)

    def choose(self, domain: str, explore: bool) -> str:
        return self._rng.choice(self.arms)


class ScribeSession(DraftSession):
    """Keeps the text of each row, and asks a function."""

    def __init__(self, guess: Guess, contexts: Sequence[DraftContext]) -> None:
        self._guess = guess
        self._rows: list[tuple[TokenSampler, list[int]]] = []
        for context in contexts:
            self.join(context)

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        return self.propose_after(rows, budget, [()] * len(rows))

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        trees = []
        for row, most, more in zip(rows, budget, ahead, strict=True):
            sampler, text = self._rows[row]
            tree = self._guess(sampler, (*text, *more), most)
            trees.append(tree.truncated(most.num_speculative_tokens, most.max_depth))
        return trees

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self._rows[row][1].extend(token_ids)

    def join(self, context: DraftContext) -> int:
        assert context.sampler is not None
        self._rows.append((context.sampler, list(context.prompt_ids)))
        return len(self._rows) - 1


class Scribe(Drafter):
    """Drafts by a function that knows how the row chooses its tokens."""

    name = "scribe"

    def __init__(self, guess: Guess) -> None:
        self._guess = guess

    def open(self, contexts: Sequence[DraftContext]) -> ScribeSession:
        return ScribeSession(self._guess, contexts)


@cache
@torch.inference_mode()
def target_logits(text: tuple[int, ...]) -> torch.Tensor:
    found: torch.Tensor = target().model(torch.tensor([text])).logits[0, -1]
    return found


def lies_first(sampler: TokenSampler, text: tuple[int, ...], budget: DraftBudget) -> DraftTree:
    """Wrong tokens first, then what the row will say, unless that is a token it never proposes.

    Nothing could be tied closer to the noise of the target.
    """
    truth: list[int] = []
    for _ in range(2):
        before = text + tuple(truth)
        logits = target_logits(before)
        truth.append(sampler.choose(logits, torch.tensor(before), len(before)))
    wrong = [(truth[0] + step) % VOCAB for step in (1, 2)]
    paths = [[wrong[0], truth[0]], [wrong[1]]]
    if truth[0] % 3:
        paths.append([truth[0], (truth[1] + 1) % VOCAB])
        paths.append([truth[0], truth[1]][: 1 + truth[1] % 2])
    return DraftTree.from_paths(paths)


def strange_law(last: int) -> torch.Tensor:
    """A law that has nothing to do with the target."""
    weights = torch.tensor([1.0 + (7 * token + 3 * last) % 11 for token in range(VOCAB)])
    return weights.double() / weights.sum()


def strange_chain(sampler: TokenSampler, text: tuple[int, ...], budget: DraftBudget) -> DraftTree:
    """A chain drawn from that law, as rejection sampling asks for."""
    drafted: tuple[int, ...] = ()
    laws: list[torch.Tensor] = []
    for _ in range(min(budget.num_speculative_tokens, budget.max_depth)):
        before = text + drafted
        laws.append(strange_law(before[-1]))
        drafted += (draw(laws[-1].log(), sampler.seed, len(before), Stream.DRAFT),)
    if not laws:
        return DraftTree()
    return DraftTree(drafted, tuple(range(ROOT, len(drafted) - 1)), draft_probs=torch.stack(laws))


class Way(NamedTuple):
    """A way to draft.

    Attributes:
        make: Makes the drafter.
        branching: Most children of a node.
        draft_level: What a level of a draft costs, in passes of the target.
        verification: How drafts are verified.
    """

    make: Callable[[], Drafter]
    branching: int = 3
    draft_level: float = 0.05
    verification: str = "match"


def eager_suffix() -> SuffixDrafter:
    return SuffixDrafter(min_probability=0.0)


def with_rejection(make: Callable[[], Drafter]) -> Way:
    return Way(make, branching=1, verification="rejection")


WAYS: dict[str, Way] = {
    "suffix tree": Way(eager_suffix, draft_level=0.0),
    "prompt lookup": Way(PromptLookupDrafter, branching=1, draft_level=0.0),
    "merged tree": Way(
        lambda: CompositeDrafter([eager_suffix(), PromptLookupDrafter()]), draft_level=0.0
    ),
    "merged with a model": Way(lambda: CompositeDrafter([PromptLookupDrafter(), model_drafter()])),
    "draft chain": Way(model_drafter, branching=1),
    "dynamic tree": Way(model_drafter),
    "static tree": Way(lambda: model_drafter(shape=SHAPE)),
    "other tokenizer": Way(other_drafter),
    "suffix>draft": Way(lambda: cascade([eager_suffix(), model_drafter()])),
    "draft>draft": Way(lambda: cascade([model_drafter(0.4), model_drafter()])),
    "selector": Way(lambda: Restless(eager_suffix(), PromptLookupDrafter(), model_drafter())),
    "liar": Way(lambda: Scribe(lies_first)),
    "rejection chain": with_rejection(model_drafter),
    "rejection, other tokenizer": with_rejection(other_drafter),
    "rejection, suffix>draft": with_rejection(lambda: cascade([eager_suffix(), model_drafter()])),
    "rejection, selector": with_rejection(
        lambda: Restless(PromptLookupDrafter(), model_drafter(), model_drafter(0.4))
    ),
    "rejection, stranger": with_rejection(lambda: Scribe(strange_chain)),
}
