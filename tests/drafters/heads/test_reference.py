"""What the authors' own code of EAGLE and Medusa says about the same weights; see ``reference``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.drafter import DraftSession
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint
from specrag.drafters.checkpoints.files import HeadFiles
from specrag.drafters.checkpoints.reader import checkpoint_of
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.layer import Rotary, Rotation
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import embedding_of, projection_of
from specrag.drafters.heads.teacher import teacher_forced
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.neural.head_session import HeadOptions, HeadSession
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive
from specrag.models.target import FINAL_NORM
from specrag.models.tiny import tiny_tokenizer
from tests.drafters.kit import TOKENIZER, VOCAB, context

FOLDER = Path(__file__).parent / "reference"
EAGLES = ("eagle", "eagle_two_layers", "eagle3", "eagle3_whole")
MEDUSAS = ("medusa", "medusa_two_layers")
LOOPS = ("decoding_eagle", "decoding_eagle3")
TOLERANCE = 1e-4
NUM_CASES = 4

Paths = dict[tuple[int, ...], float]
"""Tokens from below the root down to each node, and the probability of all of them."""


@dataclass(frozen=True)
class Reference:
    """A head of the authors and what their code made of it.

    Attributes:
        record: Config, tokens and trees.
        given: What came into the head and out of it.
        checkpoint: The head as specrag reads it.
        target: Has the embeddings and the LM head that the authors' code was given.
    """

    record: Mapping[str, Any]
    given: Mapping[str, torch.Tensor]
    checkpoint: HeadCheckpoint
    target: HuggingFaceTarget

    @property
    def blocks(self) -> list[list[int]]:
        """The tokens that are known after each round; the prompt is the first round's."""
        first, *later = self.record["rounds"]
        return [[*self.record["prompt"], *first], *later]

    @property
    def tokens(self) -> list[int]:
        return [token for block in self.blocks for token in block]


@cache
def reference(name: str) -> Reference:
    record = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    tensors = load_file(FOLDER / f"{name}.safetensors")
    weights = {key: value for key, value in tensors.items() if not key.startswith("reference.")}
    given = {key.removeprefix("reference."): tensors[key] for key in tensors.keys() - weights}
    width = record["config"].get("target_hidden_size", 32)
    shape = TargetShape("reference", VOCAB, width, num_layers=8, head_dim=16)
    checkpoint = checkpoint_of(HeadFiles(name, record["config"], weights), shape)
    embeddings = given.get("embed_tokens", weights.get("embed_tokens.weight"))
    target = shell(width, embeddings, given.get("lm_head"))
    return Reference(record, given, checkpoint, target)


def llama(**fields: Any) -> LlamaForCausalLM:
    config = LlamaConfig(bos_token_id=None, eos_token_id=0, tie_word_embeddings=False, **fields)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config).float().eval()


def shell(
    width: int, embeddings: torch.Tensor | None, lm_head: torch.Tensor | None
) -> HuggingFaceTarget:
    """A target of which only embeddings and LM head are asked for."""
    model = llama(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=4,
    )
    with torch.no_grad():
        if embeddings is not None and embeddings.shape[1] == width:
            model.get_input_embeddings().weight.copy_(embeddings)
        if lm_head is not None:
            model.get_output_embeddings().weight.copy_(lm_head)
    return HuggingFaceTarget(model, "shell")


def eagle(name: str) -> FeatureHead:
    head = reference(name).checkpoint.build()
    assert isinstance(head, FeatureHead)
    return head


def features(name: str) -> list[torch.Tensor]:
    """Of each layer that the head reads, ``[positions, target hidden]``."""
    layers = eagle(name).feature_layers
    return list(reference(name).given["features"].chunk(len(layers), dim=-1))


def opened(name: str, stages: Sequence[int]) -> DraftSession:
    """A session of rows, each of which has come through so many rounds."""
    made = reference(name)
    drafter = EagleDrafter(
        eagle(name), made.checkpoint.draft_token_ids, options=HeadOptions(min_confidence=0.0)
    )
    drafter.bind(made.target, TOKENIZER)
    session = drafter.open([context(made.record["prompt"]) for _ in stages])
    for row, stage in enumerate(stages):
        for number in range(stage):
            tell(session, row, name, number)
    return session


def tell(session: DraftSession, row: int, name: str, number: int) -> None:
    """Tells of a round what the authors' code was given in it."""
    blocks = reference(name).blocks
    ends = [sum(map(len, blocks[:count])) - 1 for count in (number, number + 1)]
    start, end = max(0, ends[0]), ends[1]
    layers = eagle(name).feature_layers
    states = {layer: part[start:end] for layer, part in zip(layers, features(name), strict=True)}
    session.observe(row, reference(name).record["rounds"][number], states)


def budget(case: Mapping[str, int]) -> DraftBudget:
    """Their tokens include the root, and their depth leaves out the first level."""
    return DraftBudget(case["total_tokens"] - 1, case["depth"] + 1, case["top_k"])


def paths(tree: DraftTree) -> Paths:
    found = {
        tuple(tree.token_ids[above] for above in tree.path_to(node)): worth
        for node, worth in enumerate(tree.confidences)
    }
    assert len(found) == len(tree)
    return found


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=TOLERANCE)


def recorded(tree: Mapping[str, list[Any]]) -> DraftTree:
    scores = tree.get("scores") or [0.0] * len(tree["tokens"])
    return DraftTree(tuple(tree["tokens"]), tuple(tree["parents"]), tuple(map(math.exp, scores)))


@pytest.mark.parametrize("name", EAGLES)
def test_a_head_says_what_the_authors_code_says(name: str) -> None:
    made, head = reference(name), eagle(name)
    following = torch.tensor([made.tokens[1:]])
    embedded = embedding_of(head, made.target)(following)
    states, count = head.fuse(features(name)).unsqueeze(0), following.shape[1]
    kv_cache = KVCache(head.num_layers, 1)
    kv_cache.begin_pass(count)
    seen = torch.ones(1, count, count, dtype=torch.bool).tril()
    positions = torch.arange(count).unsqueeze(0)
    with torch.no_grad():
        read, after = head(states, embedded, positions, additive(seen, states.dtype), kv_cache)
        (whole,) = teacher_forced(head, [part.unsqueeze(0) for part in features(name)], embedded)
    names = projection_of(head, made.target, made.checkpoint.draft_token_ids)

    assert_close(after[0], made.given["hidden"])
    assert_close(names.logits(read)[0], made.given["logits"])
    assert_close(whole, read)


@pytest.mark.parametrize("case", range(NUM_CASES))
@pytest.mark.parametrize("name", EAGLES)
def test_the_trees_are_those_of_the_authors_round_after_round(
    name: str, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = reference(name).record["cases"][case]
    session = opened(name, [0])
    spans: list[list[int]] = []
    rotate = Rotary.forward

    def noting(rotary: Rotary, positions: torch.Tensor, like: torch.Tensor) -> Rotation:
        spans.append([int(positions.min()), int(positions.max())])
        return rotate(rotary, positions, like)

    # The attention sees distances only, so no tree tells whether the first position is 0.
    monkeypatch.setattr(Rotary, "forward", noting)
    for number, tree in enumerate(wanted["trees"]):
        tell(session, 0, name, number)
        (found,) = session.propose([0], [budget(wanted)])

        assert paths(found) == pytest.approx(paths(recorded(tree)), abs=TOLERANCE)
        # Levels that cannot change the tree any more are not evaluated.
        assert spans == tree["positions"][: len(spans)]
        assert found.max_depth <= len(spans)
        spans.clear()


@pytest.mark.parametrize("name", EAGLES)
def test_rows_side_by_side_draft_as_each_alone(name: str) -> None:
    cases = reference(name).record["cases"]
    stages = [(case, round_) for case in cases for round_ in range(len(case["trees"]))]
    session = opened(name, [round_ + 1 for _, round_ in stages])
    found = session.propose(range(len(stages)), [budget(case) for case, _ in stages])

    for tree, (case, round_) in zip(found, stages, strict=True):
        assert paths(tree) == pytest.approx(paths(recorded(case["trees"][round_])), abs=TOLERANCE)


@pytest.mark.parametrize("name", MEDUSAS)
def test_medusa_heads_say_what_the_authors_code_says(name: str) -> None:
    made = reference(name)
    heads = made.checkpoint.build()
    assert isinstance(heads, MedusaHeads)
    said = heads.logits(made.given["states"], Projection.shared(made.target))

    assert_close(said.transpose(0, 1), made.given["logits"])


@pytest.mark.parametrize("name", MEDUSAS)
def test_the_sparse_trees_of_medusa_are_those_of_the_authors(name: str) -> None:
    made = reference(name)
    heads, logits = made.checkpoint.build(), made.given["logits"]
    assert isinstance(heads, MedusaHeads)
    for tree in made.record["trees"]:
        wanted, position = recorded(tree), tree["position"]
        ranks = logits[:, position].argsort(descending=True).argsort().tolist()
        shape = [[ranks[at][token] for at, token in enumerate(way)] for way in paths(wanted)]
        drafter = MedusaDrafter(heads, shape=TreeShape.from_paths(shape))
        drafter.bind(made.target, TOKENIZER)
        session = drafter.open([context([5] * (position + 1))])
        session.observe(0, [52], {FINAL_NORM: made.given["states"][: position + 1]})
        (found,) = session.propose([0], [DraftBudget(63, 4, 10)])

        assert paths(found).keys() == paths(wanted).keys()
        assert max(max(way) for way in shape) < 10
        assert sum(parent == ROOT for parent in found.parents) == 10


@pytest.mark.parametrize("name", LOOPS)
def test_a_whole_answer_goes_as_in_the_authors_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    tensors = load_file(FOLDER / f"{name}.safetensors")
    mine = {key: value for key, value in tensors.items() if not key.startswith("target.")}
    model = llama(**record["target"])
    model.load_state_dict(
        {key.removeprefix("target."): tensors[key] for key in tensors.keys() - mine}
    )
    target = HuggingFaceTarget(model, "authors")
    checkpoint = checkpoint_of(HeadFiles(name, record["config"], mine), TargetShape.of(target))
    head = checkpoint.build()
    assert isinstance(head, FeatureHead)
    seen: list[tuple[int, DraftTree]] = []
    propose = HeadSession.propose

    def noting(
        session: HeadSession, rows: Sequence[int], budget: Sequence[DraftBudget]
    ) -> list[DraftTree]:
        trees = propose(session, rows, budget)
        seen.append((session._rows[0].num_known + 1, trees[0]))
        return trees

    monkeypatch.setattr(HeadSession, "propose", noting)
    drafter = EagleDrafter(
        head, checkpoint.draft_token_ids, options=HeadOptions(min_confidence=0.0)
    )
    most, answer = budget(record), record["answer"]
    config = SpeculationConfig(
        num_speculative_tokens=most.num_speculative_tokens,
        max_depth=most.max_depth,
        branching=most.branching,
        policy="fixed",
        min_acceptance=0.0,
    )
    generator = SpeculativeGenerator(target, tiny_tokenizer(40), drafter, config)
    # Near its end an answer is drafted for no further than it goes.
    wish = SamplingParams(max_tokens=len(answer) + 2 * most.max_depth, ignore_eos=True)
    (found,) = generator.generate_batch([record["prompt"]], wish)

    assert list(found.token_ids[: len(answer)]) == answer
    assert max(b[0] - a[0] for a, b in pairwise(seen)) == most.max_depth + 1
    assert len(seen) > len(record["trees"])
    for (length, tree), wanted in zip(seen, record["trees"], strict=False):
        assert length == wanted["length"]
        assert paths(tree) == pytest.approx(paths(recorded(wanted)), abs=TOLERANCE)
