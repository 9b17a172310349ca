"""EAGLE heads as drafters: bound to targets, in company with other drafters, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specrag.decoding import costs as costs_module
from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.decoding.costs import costs_of, known_draft_level
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.catalog import make_drafter
from specrag.drafters.checkpoints.writer import write_head
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError
from specrag.models.tiny import tiny_target
from tests.drafters.checkpoints.kit import TOKENIZER as CYCLIC_TOKENIZER
from tests.drafters.checkpoints.kit import cyclic_target, knowing_eagle, knowing_eagle3
from tests.drafters.kit import TOKENIZER, VOCAB, context, model, prompt, target
from tests.drafters.reading import eagle_heads

WISHES = {
    "greedy": SamplingParams(max_tokens=14, ignore_eos=True),
    "sampled": SamplingParams(max_tokens=14, temperature=1.5, seed=3, ignore_eos=True),
}
PROMPTS = ([5, 9, 33, 12], [7, 41])


def head_folder(folder: Path, kind: str) -> str:
    write_head(folder / kind, knowing_eagle() if kind == "eagle" else knowing_eagle3())
    return f"{kind}:{folder / kind}"


def model_folder(folder: Path) -> str:
    cyclic_target().model.save_pretrained(folder / "model")
    CYCLIC_TOKENIZER.backend.save_pretrained(folder / "model")
    return f"draft:{folder / 'model'}"


def answers(drafter: str, mode: str) -> list[Generation]:
    config = SpeculationConfig(6, 3, 2, policy="fixed", min_acceptance=0.0)
    generator = SpeculativeGenerator(cyclic_target(), CYCLIC_TOKENIZER, drafter, config)
    return generator.generate_batch(PROMPTS, WISHES[mode])


def accepted(found: list[Generation]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for answer in found:
        for name, counters in answer.stats.drafters.items():
            counts[name] = counts.get(name, 0) + counters.num_accepted_tokens
    return counts


@pytest.mark.parametrize(("kind", "mode"), [("eagle3", "greedy"), ("eagle", "sampled")])
def test_heads_in_company_draft_and_change_no_token(
    tmp_path: Path, isolated_home: Path, kind: str, mode: str
) -> None:
    head, draft = head_folder(tmp_path, kind), model_folder(tmp_path)
    plain = [answer.token_ids for answer in answers("none", mode)]
    for spec in (
        head,
        f"suffix+{head}",
        f"{head}>{draft}",
        f"suffix+{head}>{draft}",
        f"auto:code=suffix,text={head}",
    ):
        found = answers(spec, mode)
        assert [answer.token_ids for answer in found] == plain, spec
        counts = accepted(found)
        by_head = sum(count for name, count in counts.items() if kind in name)
        # The cycle has nothing to copy from, so what is accepted is the head's.
        assert by_head >= (16 if mode == "greedy" else 2), (spec, counts)


def test_a_combination_reads_what_any_of_its_members_needs() -> None:
    heads = [eagle_heads(), eagle_heads(generation=2)]
    members = [EagleDrafter(head, name=str(number)) for number, head in enumerate(heads)]
    both = CompositeDrafter([SuffixDrafter(), *members])
    both.bind(target(), TOKENIZER)
    assert both.feature_layers == (0, 1, -1)
    assert both.levels == (*members[0].levels, *members[1].levels)
    assert both.device == "cpu"


def test_without_a_shipped_head_there_is_one_clear_error() -> None:
    with pytest.raises(Exception, match="no eagle3 head ships for tiny-0") as caught:
        SpeculativeGenerator(tiny_target(), TOKENIZER, "eagle3").generate([5, 6])
    assert "hint: name a head: eagle3:FOLDER" in str(caught.value)
    assert caught.value.__cause__ is None


def test_binding_again_changes_nothing() -> None:
    drafter = EagleDrafter(eagle_heads())
    drafter.bind(target(), TOKENIZER)
    session, levels = drafter.open([context(prompt(1))]), drafter.levels
    drafter.bind(target(), TOKENIZER)
    assert drafter.levels is levels
    assert session._projection._base is drafter._projection


def test_another_target_gets_the_head_as_it_was_given() -> None:
    head = eagle_heads()
    drafter = EagleDrafter(head)
    half, double = model(seed=4), model(seed=5)
    half.model.bfloat16()
    for bound in (half, double, half):
        drafter.bind(bound, TOKENIZER)
        tensors = drafter._head.state_dict()
        assert {value.dtype for value in tensors.values()} == {bound.dtype}
        for name, value in head.state_dict().items():
            assert torch.equal(tensors[name], value.to(bound.dtype))
        assert drafter._embed is bound.model.get_input_embeddings()
    assert drafter._head is not head
    assert all(parameter.requires_grad for parameter in head.parameters())


def test_a_target_that_does_not_fit_leaves_the_drafter_as_it_was() -> None:
    drafter = EagleDrafter(eagle_heads())
    drafter.bind(target(), TOKENIZER)
    before = (drafter._head, drafter._embed, drafter._projection, drafter.levels)
    with pytest.raises(ConfigError, match=f"made for {VOCAB} tokens, but tiny-0 has 64"):
        drafter.bind(tiny_target(), TOKENIZER)
    assert (drafter._head, drafter._embed, drafter._projection, drafter.levels) == before
    assert drafter._target is target()


def test_only_a_bound_drafter_can_be_opened() -> None:
    with pytest.raises(AssertionError, match="eagle must be bound to a target"):
        EagleDrafter(eagle_heads()).open([])


def test_a_level_of_a_head_is_counted(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = PassCosts((1, 2), (1.0, 1.1))
    monkeypatch.setattr(costs_module, "measure_costs", lambda target: known)
    drafter = EagleDrafter(eagle_heads())
    with monkeypatch.context() as timing:
        timing.setattr(costs_module, "_fastest", lambda actions: [0.02, 0.003])
        assert costs_of(target(), TOKENIZER, drafter) == PassCosts((1, 2), (1.0, 1.1), 0.15)
    other = EagleDrafter(eagle_heads(num_layers=2))
    other.bind(target(), TOKENIZER)
    assert known_draft_level(target(), other.levels[0]) > 0  # really timed
    both = CompositeDrafter([SuffixDrafter(), drafter])
    # Beside a drafter without costs, the combination sees itself to it that the head pays.
    assert costs_of(target(), TOKENIZER, both) == known
    assert both._level_costs == {1: 0.15}


def test_names_carry_the_head(tmp_path: Path) -> None:
    assert make_drafter(f"suffix+eagle3:{tmp_path}").name == f"suffix+eagle3:{tmp_path}"
    assert make_drafter("eagle").name == "eagle"
