from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError, ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.slim import load_slim, own_weights
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.distill import DistillKind, DistillObjective
from specrag.training.kind import Trainee
from tests.architectures import target_of
from tests.training.kit import VOCAB, target, texts

IDS = torch.tensor([token for token in range(VOCAB) if token % 7 != 2])


def trainee(num_layers: int = 2) -> Trainee:
    return DistillKind(num_layers).begin(target(), IDS, 0)


def slim_of(made: Trainee) -> Any:
    return made.objective.slim


@cache
def batch_of(places: tuple[int, ...], padding: int = 0) -> TrainingBatch:
    chosen = [texts()[place] for place in places]
    shape = (len(chosen), max(len(text.token_ids) for text in chosen) + padding)
    token_ids, answer = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    states = torch.zeros(*shape, 32)
    for row, text in enumerate(chosen):
        ids = tuple(text.token_ids)
        token_ids[row, : len(ids)] = torch.tensor(ids)
        answer[row, text.answer_start : len(ids)] = True
        output = target().prefill([ids], target().new_cache(1, len(ids)), 1, (FINAL_NORM,))
        states[row, : len(ids)] = output.features[FINAL_NORM][0].clone()
    return TrainingBatch(token_ids, answer, {FINAL_NORM: states})


@pytest.mark.parametrize("num_layers", [1, 2, 7])
def test_loss_and_metrics_are_those_of_its_own_words(num_layers: int) -> None:
    """The same from the logits of model and target, one position at a time."""
    made = trainee(num_layers)
    objective, batch = made.objective, batch_of((0, 3, 8))
    with torch.no_grad():
        found = objective(batch)
        slim = slim_of(made)(input_ids=batch.token_ids, use_cache=False).logits[..., IDS]
        whole = target().model(input_ids=batch.token_ids, use_cache=False).logits[..., IDS]
    losses, right = [], {}
    for row, place in (batch.answer[:, 1:]).nonzero().tolist():
        said = int(batch.token_ids[row, place + 1])
        right[row, place] = int(IDS[slim[row, place].argmax()]) == said
        if said in IDS:
            theirs = torch.softmax(whole[row, place], -1)
            losses.append(-float(theirs @ torch.log_softmax(slim[row, place], -1)))
    assert len(losses) < len(right)
    assert float(found.loss) == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    expected = {"positions": float(len(right))}
    for depth in range(4):
        runs = [all(right.get((r, p + n), False) for n in range(depth + 1)) for r, p in right]
        expected[f"accepted_{depth}"] = float(sum(runs))
    assert found.metrics == expected
    if num_layers == 7:  # the whole target: wrong only where it does not say its likeliest token
        assert expected["accepted_0"] > expected["accepted_3"] > 0


def test_padding_and_neighbours_change_nothing() -> None:
    objective = trainee().objective
    with torch.no_grad():
        alone = [objective(batch_of((place,))) for place in (0, 3, 8)]
        padded = objective(batch_of((3,), 5))
        together = objective(batch_of((0, 3, 8)))
    assert float(padded.loss) == pytest.approx(float(alone[1].loss), rel=1e-5)
    assert padded.metrics == alone[1].metrics
    for name, value in together.metrics.items():
        assert value == sum(one.metrics[name] for one in alone), name


def test_the_model_learns_and_its_target_does_not() -> None:
    before = {key: value.clone() for key, value in target().model.state_dict().items()}
    objective = trainee().objective
    trained = {name for name, p in objective.named_parameters() if p.requires_grad}
    assert trained == {f"slim.{name}" for name in own_weights(objective.slim)}
    assert not any("embed" in name for name in trained)
    optimizer = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], 0.01)
    losses: list[float] = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = objective(batch_of((0, 3, 8))).loss
        loss.backward()
        if not losses:
            assert all(
                p.grad is not None and bool(p.grad.any())
                for p in objective.parameters()
                if p.requires_grad
            )
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    after = target().model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert not target().model.get_input_embeddings().weight.grad


def test_its_layers_reach_from_the_first_to_the_last() -> None:
    for count, layers in ((1, [6]), (2, [0, 6]), (3, [0, 3, 6]), (7, list(range(7)))):
        slim = slim_of(trainee(count))
        assert len(slim.model.layers) == count
        for ours, number in zip(slim.model.layers, layers, strict=True):
            theirs = target().decoder_layers[number]
            assert torch.equal(ours.mlp.up_proj.weight, theirs.mlp.up_proj.weight)


def test_a_target_in_low_precision_teaches_in_full_precision() -> None:
    half = HuggingFaceTarget(copy.deepcopy(target().model).bfloat16(), "half")
    made = DistillKind(2).begin(half, IDS, 0)
    assert {p.dtype for p in own_weights(made.objective.slim).values()} == {torch.float32}
    loss = made.objective(batch_of((0, 3))).loss
    loss.backward()
    assert loss.dtype == torch.float32
    expected = trainee().objective(batch_of((0, 3))).loss
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=0.05)


def test_it_trains_as_it_drafts() -> None:
    """Whatever mode the training sets: with dropout no two runs would be alike."""
    made = trainee()
    made.objective.train()
    assert not any(module.training for module in slim_of(made).modules())


def test_what_is_written_is_what_was_trained(tmp_path: Path) -> None:
    made = trainee()
    for parameter in own_weights(made.objective.slim).values():
        parameter.data.mul_(1.5)
    made.write(tmp_path)
    loaded = load_slim(tmp_path, target())
    with torch.no_grad():
        text = batch_of((0,)).token_ids
        ours = slim_of(made)(input_ids=text, use_cache=False).logits[..., IDS]
        theirs = loaded.model(input_ids=text, use_cache=False).logits[..., IDS]
    assert float((ours - theirs).norm() / ours.norm()) < 0.02  # written in bfloat16


@pytest.mark.parametrize("num_layers", [0, -2])
def test_a_model_without_layers_is_refused(num_layers: int) -> None:
    with pytest.raises(ConfigError, match=f"num_layers must be at least 1, got {num_layers}"):
        DistillKind(num_layers)


def test_more_layers_than_the_target_has_are_refused() -> None:
    with pytest.raises(ModelError, match="has 1 to 7 layers, got 8"):
        trainee(8)


def test_a_batch_without_answers_has_no_loss() -> None:
    objective = trainee().objective
    assert isinstance(objective, DistillObjective)
    full = batch_of((0,))
    empty = TrainingBatch(full.token_ids, torch.zeros_like(full.answer), full.features)
    found = objective(empty)
    assert float(found.loss.detach()) == 0.0
    assert found.metrics["positions"] == 0


def test_the_law_is_the_target_s_own() -> None:
    """Scaled and capped as its logits are: gemma2 caps them."""
    capped = target_of("gemma2")
    ids = torch.arange(capped.vocab_size)
    objective = DistillKind(2).begin(capped, ids, 0).objective
    text = (1, 5, 9, 30, 12)
    output = capped.prefill([text], capped.new_cache(1, 8), 5, (FINAL_NORM,))
    states = output.features[FINAL_NORM].clone()
    answer = torch.tensor([[False, True, True, True, True]])
    with torch.no_grad():
        loss = objective(TrainingBatch(torch.tensor([text]), answer, {FINAL_NORM: states})).loss
    law = torch.softmax(output.logits[0, :4], -1)
    entropy = -(law * law.log()).sum(-1).mean()
    # A model of all layers says what its target says; nothing is nearer than that.
    assert float(loss) == pytest.approx(float(entropy), rel=1e-3)
    assert Projection.shared(capped).logits(states * 1e4).abs().max() <= 30.0
