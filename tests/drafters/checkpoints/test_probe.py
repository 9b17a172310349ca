"""The self-probe: right heads pass, wrongly read ones are mended, broken ones are refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.drafters.checkpoints import agreement, probe
from specrag.drafters.checkpoints.agreement import (
    Agreement,
    Trial,
    commonest_share,
    features_of,
    generated_trials,
)
from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint, HeadConfig
from specrag.drafters.checkpoints.probe import FLOOR, Probed
from specrag.drafters.checkpoints.reader import checkpoint_of, read_checkpoint
from specrag.drafters.heads.config import Eagle3Config
from specrag.drafters.heads.layer import DraftLayer
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.drafters.heads.teacher import teacher_forced
from specrag.errors import ModelError
from specrag.models.target import FINAL_NORM
from tests.drafters.checkpoints.kit import (
    FEATURES,
    SHAPE,
    TOKENIZER,
    VOCAB,
    WIDTH,
    Tensors,
    authors_names,
    cyclic_target,
    eagle3_settings,
    engine_names,
    files,
    following,
    knowing_eagle,
    knowing_eagle3,
    knowing_medusa,
    offsets,
    seeded,
    states_of,
    written,
)

IDS = "eagle_aux_hidden_state_layer_ids"
LOGGER = "specrag.drafters.checkpoints.probe"


def eagle3(changed: Mapping[str, torch.Tensor] | None = None) -> HeadCheckpoint:
    tensors = {**authors_names(knowing_eagle3().state_dict()), **(changed or {})}
    return checkpoint_of(files(tensors, eagle3_settings()), SHAPE)


def probed(checkpoint: HeadCheckpoint) -> Probed:
    return probe.probe(cyclic_target(), TOKENIZER, checkpoint)


def shares(found: Probed) -> tuple[float, ...]:
    assert found.agreement is not None
    return found.agreement.shares


def test_the_target_answers_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "NUM_TOKENS", 9)
    for trial, text in zip(
        generated_trials(cyclic_target(), TOKENIZER), agreement.PROMPTS, strict=True
    ):
        prompt = TOKENIZER.encode_chat([{"role": "user", "content": text}])
        answer = trial.token_ids[trial.answer_start :]
        assert list(trial.token_ids[: trial.answer_start]) == prompt
        assert answer == tuple(following(torch.tensor(prompt[-1]), i + 1).item() for i in range(9))


def test_features_are_those_of_every_position() -> None:
    trial = Trial((5, 9, 33), 1)
    found = features_of(cyclic_target(), trial, (3, FINAL_NORM))
    for layer, states in found.items():
        assert states.shape == (1, 3, WIDTH)
        wanted = states_of(cyclic_target(), layer)[[4, 8, 32]]
        assert torch.allclose(states[0], wanted, rtol=1e-4, atol=1e-3)


def test_heads_that_know_pass_as_declared(caplog: pytest.LogCaptureFixture) -> None:
    medusa = MedusaConfig(WIDTH, VOCAB, 3, own_lm_head=True)
    heads: list[tuple[Tensors, HeadConfig]] = [
        (authors_names(knowing_eagle3().state_dict()), knowing_eagle3().config),
        (knowing_eagle().state_dict(), knowing_eagle().config),
        (
            {
                key.removeprefix("heads.")
                if key.startswith("heads.")
                else f"{key.split('.')[1]}.1.weight": value
                for key, value in knowing_medusa().state_dict().items()
            },
            medusa,
        ),
    ]
    for tensors, config in heads:
        found = probed(checkpoint_of(files(tensors, eagle3_settings()), SHAPE))
        assert found.checkpoint.config == found.head.config == config
        assert found.agreement is not None
        assert min(found.agreement.shares) > 0.98
        assert found.agreement == found.declared
        assert found.agreement.total > 200
    assert not caplog.records  # only at the level of information


def test_a_single_medusa_head_has_one_level() -> None:
    tensors = {
        "0.0.linear.weight": torch.zeros(WIDTH, WIDTH),
        "0.0.linear.bias": torch.zeros(WIDTH),
        "0.1.weight": knowing_medusa().state_dict()["lm_heads.0.weight"],
    }
    assert shares(probed(checkpoint_of(files(tensors), SHAPE)))[0] > 0.98


def test_medusa_heads_that_read_the_target_s_lm_head() -> None:
    heads = MedusaHeads(MedusaConfig(WIDTH, VOCAB, 2))
    checkpoint = checkpoint_of(files(named_medusa(heads)), SHAPE)
    with pytest.raises(ModelError, match="does not agree"):
        probed(checkpoint)  # new heads name the token that the target names itself


def named_medusa(heads: MedusaHeads) -> Tensors:
    return {key.removeprefix("heads."): value for key, value in heads.state_dict().items()}


def test_a_trimmed_vocabulary_counts_what_it_leaves_out() -> None:
    chosen = tuple(range(0, VOCAB, 2))
    tensors = authors_names(knowing_eagle3(chosen).state_dict())
    named = {**tensors, "d2t": offsets(chosen)}
    checkpoint = checkpoint_of(files(named, eagle3_settings()), SHAPE)
    assert shares(probed(checkpoint)) == pytest.approx((0.5, 0.5), abs=0.03)
    # Without an LM head of its own, the target's rows are read: of its codes they know nothing.
    del named["lm_head.weight"]
    with pytest.raises(ModelError, match="does not agree"):
        probed(checkpoint_of(files(named, eagle3_settings()), SHAPE))


def eagle3_file(place: Path, config: dict[str, Any]) -> HeadCheckpoint:
    tensors = engine_names(knowing_eagle3().state_dict())
    return read_checkpoint(str(written(place, tensors, config)), cyclic_target())


@pytest.mark.parametrize(
    ("config", "named"),
    [
        # The layers, counted one way and meant the other.
        ({IDS: [1, 3, 4]}, None),
        ({IDS: [2, 4, 5]}, None),
        ({IDS: [1, 3, 4], "speculators_model_type": "eagle3"}, "feature_layers=(1, 3, 4)"),
        ({"norm_before_residual": True}, "norm_before_residual=False"),
        ({"norm_output": True}, "norm_output=False"),
        (
            {
                "norm_output": True,
                "norm_before_residual": True,
                "speculators_model_type": "eagle3",
                IDS: [1, 3, 4],
            },
            "feature_layers=(1, 3, 4), norm_before_residual=False, norm_output=False",
        ),
    ],
)
def test_a_wrong_convention_is_mended(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    config: dict[str, Any],
    named: str | None,
) -> None:
    checkpoint = eagle3_file(tmp_path / "head", eagle3_settings(**config))
    with caplog.at_level(logging.WARNING, LOGGER):
        found = probed(checkpoint)
    assert min(shares(found)) > 0.98
    assert isinstance(found.checkpoint.config, Eagle3Config)
    assert found.checkpoint.config == knowing_eagle3().config
    assert found.head.feature_layers == FEATURES
    if named is None:
        assert not caplog.records
    else:
        assert f"read with {named}: agrees with" in caplog.text
        assert found.checkpoint.notes[-1].startswith(f"read with {named}")
        assert found.declared is not None
        assert found.declared.score < 0.7


@pytest.mark.parametrize("shift", [1, -1])
def test_layers_one_off_the_authors_are_found(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    # A file that says nothing, of a head whose layers lie one off those of the authors.
    layers = tuple(layer + shift for layer in FEATURES)
    states = torch.cat([states_of(cyclic_target(), at) for at in layers], dim=-1).double()
    codes = torch.cat([states_of(cyclic_target(), at) for at in FEATURES], dim=-1).double()
    wanted = codes @ knowing_eagle3().fc.weight.double().T
    weight = torch.linalg.lstsq(states, wanted).solution.T.float().contiguous()
    found = probed(eagle3({"fc.weight": weight}))
    assert found.head.feature_layers == layers
    assert min(shares(found)) > 0.98


def test_of_readings_that_agree_alike_the_declared_one_stays() -> None:
    tensors = authors_names(knowing_eagle3().state_dict())
    # With features that stand for nothing, every choice of layers is as good.
    tensors["fc.weight"] = torch.zeros_like(tensors["fc.weight"])
    tensors["midlayer.self_attn.v_proj.weight"] = torch.zeros(32, 2 * WIDTH)
    checkpoint = checkpoint_of(files(tensors, eagle3_settings()), SHAPE)
    with pytest.raises(ModelError) as caught:
        probed(checkpoint)
    assert "of as declared: 0.0" in str(caught.value)


def roll(key: str, by: int, dim: int) -> torch.Tensor:
    value = authors_names(knowing_eagle3().state_dict())[key]
    return value.roll(by, dim)


@pytest.mark.parametrize(
    "change",
    [
        {"lm_head.weight": roll("lm_head.weight", 1, 0)},
        {"midlayer.self_attn.v_proj.weight": roll("midlayer.self_attn.v_proj.weight", WIDTH, 1)},
        {"midlayer.self_attn.o_proj.weight": torch.zeros(WIDTH, WIDTH)},
        seeded(torch.nn.ModuleDict({"fc": torch.nn.Linear(3 * WIDTH, WIDTH, bias=False)})),
    ],
    ids=["shifted tokens", "state before embedding", "silent", "random"],
)
def test_a_head_that_is_wrong_throughout_is_refused(change: Tensors) -> None:
    with pytest.raises(ModelError, match="does not agree with the target 'cyclic'") as caught:
        probed(eagle3(change))
    said = str(caught.value)
    assert "as declared: 0." in said
    assert "norm_before_residual=True, norm_output=True: 0." in said
    assert f"At least {FLOOR:.3f} is needed" in said
    assert "hint: " in said


def test_code_that_forgets_the_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = DraftLayer.finish

    def forgetful(
        layer: DraftLayer, attended: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        return finish(layer, attended, torch.zeros_like(residual))

    monkeypatch.setattr(DraftLayer, "finish", forgetful)
    for checkpoint in (eagle3(), checkpoint_of(files(knowing_eagle().state_dict()), SHAPE)):
        with pytest.raises(ModelError, match="does not agree"):
            probed(checkpoint)


def test_code_that_pairs_a_state_with_its_own_token_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = teacher_forced

    def shifted(
        head: Any, features: Any, embedded: torch.Tensor, depth: int = 1
    ) -> list[torch.Tensor]:
        return right(head, features, embedded.roll(1, dims=1), depth)

    monkeypatch.setattr(agreement, "teacher_forced", shifted)
    for checkpoint in (eagle3(), checkpoint_of(files(knowing_eagle().state_dict()), SHAPE)):
        with pytest.raises(ModelError, match="does not agree"):
            probed(checkpoint)


def test_a_target_that_says_too_little_tries_nothing(caplog: pytest.LogCaptureFixture) -> None:
    found = probe.probe(cyclic_target(), TOKENIZER, eagle3(), [Trial((1, 2, 3, 4), 1)])
    assert (found.agreement, found.declared) == (None, None)
    assert "not tried: the target 'cyclic' said only 1 tokens" in caplog.text


def test_the_target_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*args: Any) -> tuple[Trial, ...]:
        asked.append(args)
        return (Trial(tuple(range(1, 60)), 1),)

    monkeypatch.setattr(probe, "generated_trials", counted)
    monkeypatch.setattr(probe, "_TRIALS", type(probe._TRIALS)())
    for _ in range(2):
        assert probed(eagle3()).agreement == Agreement((56, 56), 56)
    assert len(asked) == 1


def test_the_floor_rises_with_what_needs_no_head() -> None:
    trials = (Trial((1, *[7] * 9), 1), Trial((1, 8), 1))
    assert commonest_share(trials) == 0.9
    assert commonest_share(()) == 0.0


def test_figures_of_agreement() -> None:
    found = Agreement((30, 10), 40)
    assert (found.shares, found.score) == ((0.75, 0.25), 0.5)
    assert str(found) == "0.750 and 0.250"
    assert Agreement((0,), 0).shares == (0.0,)
