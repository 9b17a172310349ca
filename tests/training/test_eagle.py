from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import embedding_of, projection_of
from specrag.drafters.neural.head_cache import HeadCache
from specrag.drafters.neural.head_row import HeadRow
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.eagle import EagleLossSettings, EagleObjective
from specrag.training.objective import COUNT
from tests.drafters.kit import VOCAB, context, prompt, target
from tests.drafters.reading import eagle_heads, features_of

Head = EagleHead | Eagle3Head

IDS = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))[:50]
SHAPES: dict[str, dict[str, Any]] = {
    "eagle3": {},
    "eagle3, two layers": {"num_layers": 2},
    "eagle3, three layers": {"num_layers": 3, "layer": {"qk_norm": True, "qkv_bias": True}},
    "eagle3, other conventions": {
        "norm_output": True,
        "norm_before_residual": True,
        "fc_norm": True,
        "layer": {"rope": {"rope_type": "default", "rope_theta": 50.0}},
    },
    "eagle3, all its own": {
        "own_embedding": True,
        "own_lm_head": True,
        "draft_vocab_size": len(IDS),
    },
    "eagle": {"generation": 2},
    "eagle, two layers": {"generation": 2, "num_layers": 2},
}
STEPS = 4


@cache
def head_of(name: str) -> Head:
    return eagle_heads(3, **SHAPES[name])


def text_of(number: int, length: int) -> tuple[int, ...]:
    """Tokens that need not be the target's: a draft may be of any text."""
    return (prompt(number, 20) * 12)[:length]


def objective_of(head: Head, **options: float) -> EagleObjective:
    settings = EagleLossSettings(**{"num_steps": STEPS, "draws_depth": False, **options})  # type: ignore[arg-type]
    projection = Projection.shared(target(), IDS)
    return EagleObjective(head, embedding_of(head, target()), projection, settings)


def batch_of(
    head: Head, texts: Sequence[tuple[Sequence[int], int]], padding: int = 0
) -> TrainingBatch:
    """Texts and where their answers begin; what lies behind them is anything but zero."""
    width = max(len(text) for text, _ in texts) + padding
    layers = (*head.feature_layers, FINAL_NORM)
    token_ids = torch.full((len(texts), width), 7 if padding else 0)
    answer = torch.zeros(len(texts), width, dtype=torch.bool)
    features = {
        layer: torch.full((len(texts), width, 32), 3.0 if padding else 0.0, dtype=torch.double)
        for layer in layers
    }
    for row, (text, start) in enumerate(texts):
        token_ids[row, : len(text)] = torch.tensor(text)
        answer[row, start : len(text)] = True
        for layer, states in features_of(tuple(text), layers).items():
            features[layer][row, : len(text)] = states
    return TrainingBatch(token_ids, answer, features)


@torch.no_grad()
def drafted(head: Head, text: Sequence[int], place: int, step: int) -> list[torch.Tensor]:
    """What a real draft has at a place, and its state: its last ``step`` tokens are drafted."""
    last = place - step  # position with the target's own states
    cache = HeadCache(head, embedding_of(head, target()))
    row = HeadRow(context(text[: last + 1]))
    states = features_of(tuple(text), head.feature_layers)
    row.observe([text[last + 1]], {layer: found[: last + 1] for layer, found in states.items()})
    cache.catch_up({0: row})
    assert row.read is not None
    assert row.state is not None
    read, state = row.read, row.state
    for depth, token in enumerate(text[last + 2 : place + 2]):
        found, after = cache.drafted([[(token, state, depth, range(depth))]], depth)
        read, state = found[0, 0], after[0, 0]
    return [read, state]


@pytest.mark.parametrize("name", SHAPES)
def test_every_step_is_that_of_a_real_draft(name: str) -> None:
    head, text = head_of(name), text_of(1, 9)
    batch = batch_of(head, [(text_of(2, 8), 3), (text, 4)])
    with torch.no_grad():
        found = objective_of(head).steps(batch)
    assert len(found) == STEPS
    for step, (read, states) in enumerate(found):
        for place in range(step, len(text) - 1):
            expected = drafted(head, text, place, step)
            got = [read[1, place], states[1, place]]
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    # Were a step the same as the one before, nothing would be tested.
    far = (found[1][0][1, 3] - found[0][0][1, 3]).abs().max()
    assert float(far) > 0.01


@torch.no_grad()
def naive(
    head: Head, texts: Sequence[tuple[Sequence[int], int]], *, decay: float, state_weight: float
) -> tuple[float, dict[str, float]]:
    """Loss and metrics, one position at a time, from real drafts."""
    projection = projection_of(head, target(), IDS)
    teacher = Projection.shared(target(), IDS)
    total, weights = 0.0, 0.0
    right: dict[tuple[int, int, int], bool] = {}
    starts = []
    for step in range(STEPS):
        losses, distances = [], []
        for row, (text, start) in enumerate(texts):
            states = features_of(tuple(text), (FINAL_NORM,))[FINAL_NORM]
            for place in range(max(0, start - 2), len(text) - 2):
                if step == 0:
                    starts.append((row, place))
                if place < step:
                    continue
                read, state = drafted(head, text, place, step)
                logits, said = projection.logits(read), text[place + 2]
                probs = torch.softmax(teacher.logits(states[place + 1]), -1)
                if said in IDS:
                    losses.append(-float(probs @ torch.log_softmax(logits, -1)))
                gap = (state - states[place + 1]).abs()
                distances.append(torch.where(gap < 1, 0.5 * gap**2, gap - 0.5).mean())
                right[row, place, step] = int(IDS[logits.argmax()]) == said
        weight = decay**step
        total += weight * sum(losses) / max(1, len(losses))
        if state_weight and distances:
            total += weight * state_weight * float(torch.stack(distances).mean())
        weights += weight
    metrics: dict[str, float] = {"positions": len(starts)}
    for depth in range(STEPS):
        metrics[f"accepted_{depth}"] = sum(
            all(right.get((row, place + n, n), False) for n in range(depth + 1))
            for row, place in starts
        )
    return total / weights, metrics


# Some answers begin at once, so that a place has fewer tokens before it than the draft is deep.
TEXTS = [(text_of(4, 9), 1), (text_of(5, 12), 5), (text_of(6, 7), 2), (text_of(7, 5), 4)]


@pytest.mark.parametrize(("name", "state_weight"), [("eagle3, two layers", 0.0), ("eagle", 0.3)])
def test_loss_and_metrics_are_those_of_real_drafts(name: str, state_weight: float) -> None:
    head = head_of(name)
    objective = objective_of(head, decay=0.6, state_weight=state_weight)
    found = objective(batch_of(head, TEXTS))
    loss, metrics = naive(head, TEXTS, decay=0.6, state_weight=state_weight)
    assert float(found.loss.detach()) == pytest.approx(loss, rel=1e-6)
    assert found.metrics == metrics


def test_accepted_tokens_are_counted_from_the_beginning_of_a_draft() -> None:
    """Of a text that the head wrote: as it drafts, four tokens at a time."""
    head = head_of("eagle3")
    text = [9, 30]
    for number in range(14):
        if number % 7 == 5:
            text.append(int(IDS[number]))
            continue
        place = len(text) - 2
        read, _ = drafted(head, text, place, min(number % 4, place))
        text.append(int(IDS[projection_of(head, target(), IDS).logits(read).argmax()]))
    found = objective_of(head)(batch_of(head, [(text, 2)])).metrics
    _, expected = naive(head, [(text, 2)], decay=0.8, state_weight=0.0)
    assert found == expected
    counts = [found[f"accepted_{depth}"] for depth in range(STEPS)]
    assert found["positions"] > counts[0] > counts[3] > 0
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("name", ["eagle3, two layers", "eagle"])
@hypothesis_settings(deadline=None, max_examples=8)
@given(drawn=st.data())
def test_padding_and_neighbours_change_nothing(name: str, drawn: st.DataObject) -> None:
    head = head_of(name)
    texts = []
    for number in range(drawn.draw(st.integers(1, 4))):
        length = drawn.draw(st.integers(3, 14))
        texts.append((text_of(number, length), drawn.draw(st.integers(1, length - 1))))
    objective = objective_of(head, num_steps=drawn.draw(st.integers(1, 5)), state_weight=0.2)
    padding = drawn.draw(st.integers(0, 5))
    with torch.no_grad():
        together = objective(batch_of(head, texts, padding))
        alone = [objective(batch_of(head, [text])) for text in texts]
        whole = objective.steps(batch_of(head, texts, padding))
    assert torch.isfinite(together.loss)
    for metric, value in together.metrics.items():
        assert value == sum(found.metrics[metric] for found in alone), metric
    if len(texts) == 1:
        assert float(together.loss) == pytest.approx(float(alone[0].loss), rel=1e-9)
    for row, text in enumerate(texts):
        single = objective.steps(batch_of(head, [text]))
        for step, (read, _) in enumerate(single):
            real = slice(step, len(text[0]) - 1)
            torch.testing.assert_close(whole[step][0][row, real], read[0, real])


def test_tokens_that_it_cannot_say_count_as_wrong_and_teach_nothing() -> None:
    head = head_of("eagle3")
    outside = next(token for token in range(VOCAB) if token not in IDS)
    text = (*text_of(8, 6), *[outside] * 5)
    found = objective_of(head)(batch_of(head, [(text, 6)]))
    assert float(found.loss.detach()) == 0.0
    assert found.metrics == {"positions": 5.0, **{f"accepted_{n}": 0.0 for n in range(STEPS)}}
    head.zero_grad()
    found.loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in head.parameters())


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_reach_the_whole_head_and_nothing_else(name: str) -> None:
    head = head_of(name)
    head.zero_grad()
    objective = objective_of(head, state_weight=0.1 if "generation" in SHAPES[name] else 0.0)
    model = target().model
    for parameter in model.parameters():
        parameter.grad = None
    objective(batch_of(head, TEXTS)).loss.backward()
    for key, parameter in head.named_parameters():
        assert parameter.grad is not None, key
        assert bool(parameter.grad.isfinite().all()), key
        assert bool(parameter.grad.any()), key
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {key.split(".")[0] for key, _ in objective.named_parameters()} == {"head"}
    head.zero_grad()


@pytest.mark.parametrize("state_weight", [0.0, 1.0])
def test_texts_too_short_to_draft_have_no_loss(state_weight: float) -> None:
    """A place needs tokens before it; a batch without one must not turn weights into NaN."""
    head = head_of("eagle")
    head.zero_grad()
    short = [((5, 6), 1), ((5, 6, 9), 1)]
    found = objective_of(head, state_weight=state_weight)(batch_of(head, short))
    found.loss.backward()
    assert found.metrics["positions"] == 1
    assert bool(found.loss.isfinite())
    assert all(p.grad is None or p.grad.isfinite().all() for p in head.parameters())
    nothing = objective_of(head, state_weight=state_weight)(batch_of(head, short[:1]))
    nothing.loss.backward()
    assert float(nothing.loss.detach()) == 0.0
    assert nothing.metrics["positions"] == 0
    head.zero_grad()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_steps": 0}, "num_steps must be at least 1, got 0"),
        ({"decay": 0.0}, "decay must be above 0 and at most 1, got 0.0"),
        ({"decay": 1.5}, "decay must be above 0 and at most 1, got 1.5"),
        ({"state_weight": -1.0}, "state_weight must be 0 or more, got -1.0"),
    ],
)
def test_settings_that_are_none_are_refused(change: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EagleLossSettings(**change)  # type: ignore[arg-type]


def test_while_training_a_batch_goes_to_a_depth_drawn_for_it() -> None:
    head = head_of("eagle3")
    objective = objective_of(head, draws_depth=True)
    batches = [batch_of(head, [(text_of(number, 9), 3)]) for number in range(40)]
    whole = objective_of(head)
    depths = []
    for batch in batches:
        found = objective(batch)
        assert objective(batch).metrics == found.metrics  # a restart teaches it in the same way
        depth = sum(name.startswith("accepted_") and "/" not in name for name in found.metrics)
        only = objective_of(head, num_steps=depth, decay=1.0)(batch)
        assert float(found.loss.detach()) == pytest.approx(float(only.loss.detach()))
        expected = whole(batch).metrics
        for name, value in found.metrics.items():
            wanted = found.metrics["positions"] if name.endswith(COUNT) else expected[name]
            assert value == wanted, name
        depths.append(depth)
    # Shares of 0.8 to the power of the depth.
    assert all(depths.count(depth) > 0 for depth in range(1, STEPS + 1))
    assert depths.count(1) > depths.count(STEPS)
    objective.eval()
    assert objective(batches[0]).metrics == whole(batches[0]).metrics
