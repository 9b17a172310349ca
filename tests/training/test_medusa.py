from __future__ import annotations

from functools import cache

import pytest
import torch

from specrag.decoding.generator import Generation
from specrag.drafters.heads.accuracy import ReadText, measured_accuracies
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.drafters.medusa import MedusaDrafter
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.medusa import MedusaLossSettings, MedusaObjective
from tests.drafters.kit import VOCAB, decode, params, prompt, target
from tests.drafters.reading import HIDDEN, medusa_heads, said_texts

IDS = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))[:60]


def batch(texts: list[ReadText]) -> TrainingBatch:
    width = max(text.token_ids.shape[1] for text in texts)

    def padded(part: torch.Tensor) -> torch.Tensor:
        wide = part.new_zeros(1, width, *part.shape[2:])
        wide[:, : part.shape[1]] = part
        return wide

    states, token_ids, answer = (torch.cat([padded(t[k]) for t in texts]) for k in range(3))
    return TrainingBatch(token_ids, answer, {FINAL_NORM: states})


@pytest.mark.parametrize("own", [True, False])
def test_the_loss_is_the_cross_entropy_with_what_the_target_says(own: bool) -> None:
    """The same, one position at a time."""
    projection = Projection.shared(target(), IDS)
    heads = medusa_heads(own_lm_head=own, draft_vocab_size=len(IDS))
    texts = batch(said_texts()[:4])
    found = MedusaObjective(heads, projection, MedusaLossSettings(0.5))(texts)

    states = texts.features[FINAL_NORM]
    losses: list[list[float]] = [[], [], []]
    right, accepted, positions = [0, 0, 0], [0, 0, 0], 0
    width = texts.token_ids.shape[1]
    for row in range(len(texts.token_ids)):
        for place in range(width - 2):
            if not texts.answer[row, place + 2]:
                continue
            positions += 1
            logits = heads.logits(states[row, place], projection).detach()
            agreed = True
            for head in range(3):
                wanted = place + 2 + head
                token = int(texts.token_ids[row, wanted]) if wanted < width else -1
                spoken = wanted < width and bool(texts.answer[row, wanted])
                said = bool(spoken and IDS[int(logits[head].argmax())] == token)
                agreed = agreed and said
                right[head] += said
                accepted[head] += agreed
                if spoken and token in IDS:
                    probs = torch.softmax(projection.logits(states[row, wanted - 1]), -1)
                    losses[head].append(-float(probs @ torch.log_softmax(logits[head], -1)))
    means = [sum(each) / len(each) for each in losses]

    expected = (means[0] + 0.5 * means[1] + 0.25 * means[2]) / 1.75
    assert float(found.loss.detach()) == pytest.approx(expected)
    assert found.metrics == {
        "positions": positions,
        **{f"right_{head}": count for head, count in enumerate(right)},
        **{f"accepted_{head}": count for head, count in enumerate(accepted)},
    }
    assert sum(right) > 0
    assert len(losses[0]) < positions  # some tokens cannot be named


def test_only_the_heads_are_trained() -> None:
    heads, projection = medusa_heads(), Projection.shared(target(), IDS)
    objective = MedusaObjective(heads, projection)
    before = projection.weight.clone()
    objective(batch(said_texts()[:2])).loss.backward()

    assert {name.split(".")[0] for name, _ in objective.named_parameters()} == {"heads"}
    assert all(parameter.grad is not None for parameter in heads.parameters())
    assert torch.equal(projection.weight, before)


def test_a_batch_without_answers_has_no_loss_and_changes_nothing() -> None:
    heads = medusa_heads()
    empty = TrainingBatch(
        torch.zeros(1, 3, dtype=torch.long),
        torch.zeros(1, 3, dtype=torch.bool),
        {FINAL_NORM: torch.ones(1, 3, HIDDEN).double()},
    )
    found = MedusaObjective(heads, Projection.shared(target(), IDS))(empty)
    found.loss.backward()

    assert float(found.loss.detach()) == 0.0
    assert found.metrics["positions"] == 0
    assert all(float(p.grad.abs().sum()) == 0 for p in heads.parameters() if p.grad is not None)


@pytest.mark.parametrize("decay", [0.0, 1.1])
def test_a_decay_that_is_none_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match=f"above 0 and at most 1, got {decay}"):
        MedusaLossSettings(decay)


@cache
def trained() -> tuple[MedusaHeads, list[float]]:
    """Heads after some steps on the target's own texts, and the loss on the way."""
    heads, projection = new_heads(), Projection.shared(target())
    objective = MedusaObjective(heads, projection)
    optimizer = torch.optim.AdamW(heads.parameters(), lr=0.05)
    texts, losses = batch(said_texts()), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = objective(texts).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return heads, losses


def new_heads() -> MedusaHeads:
    heads = MedusaHeads(MedusaConfig(HIDDEN, VOCAB, 3, own_lm_head=True)).double()
    heads.start_from(Projection.shared(target()))
    return heads


def answers(drafter: MedusaDrafter, branching: int = 1, nodes: int = 3) -> list[Generation]:
    wishes = [params("greedy", number, max_tokens=30, ignore_eos=True) for number in range(12)]
    prompts = [prompt(1000 + number) for number in range(12)]
    return decode(drafter, wishes, prompts, nodes=nodes, branching=branching)


def mean_length(found: list[Generation]) -> float:
    emitted = sum(len(answer.token_ids) - 1 for answer in found)
    return emitted / sum(answer.stats.num_passes for answer in found)


def test_training_makes_the_target_accept_more() -> None:
    heads, losses = trained()
    before, after = answers(MedusaDrafter(new_heads())), answers(MedusaDrafter(heads))

    assert [a.token_ids for a in after] == [a.token_ids for a in before]
    assert losses[-1] < losses[0] - 0.5
    assert mean_length(after) > mean_length(before) + 0.2


def test_a_tree_from_measured_accuracies_brings_more_than_a_chain() -> None:
    heads, _ = trained()
    shares = measured_accuracies(heads, Projection.shared(target()), said_texts()[20:], 4)
    drafter = MedusaDrafter(heads, accuracies=shares)

    assert all(row[0] == max(row) for row in shares)
    chain, tree = answers(drafter), answers(drafter, branching=4, nodes=8)
    assert mean_length(tree) > mean_length(chain)
