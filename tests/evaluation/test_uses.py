"""What is advised for each use follows the figures, and names what exists."""

from __future__ import annotations

import pytest

from specrag.decoding.analysis import best_gamma, break_even_epsilon, round_cost, speedup
from specrag.decoding.budget import POLICIES, PassCosts, SpeculationConfig
from specrag.drafters.catalog import Single, make_drafter, parse
from specrag.errors import ConfigError
from specrag.evaluation.advise import advise_report
from specrag.evaluation.cost_table import CostTable
from specrag.evaluation.uses import USES, Situation, advice, check_use

STEP = PassCosts((1, 2, 4, 8, 16, 32), (1.0, 1.75, 1.94, 1.94, 1.98, 2.27))
LINEAR = PassCosts((1, 2), (1.0, 1.9))
GENTLE = PassCosts((1, 2, 16), (1.0, 1.05, 1.6))


def here(use: str, costs: PassCosts, alpha: float) -> str:
    text: str = advice(use, Situation(0.0, costs), alpha)["here"]
    return text


def test_all_uses_of_the_field_are_there() -> None:
    assert list(USES) == ["code", "long_text", "chat", "streaming", "batch"]
    assert {use.policy for use in USES.values()} <= set(POLICIES)
    assert SpeculationConfig().policy == "goodput"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("costs", [None, STEP, LINEAR])
def test_every_drafter_that_is_advised_has_a_name_that_can_be_typed(
    use: str, costs: PassCosts | None
) -> None:
    given = advice(use, Situation(0.0, costs))
    for name in [given["drafter"], *given["alternatives"]]:
        expression = parse(name)
        if isinstance(expression, Single) and not expression.argument:
            assert make_drafter(name).name == name


def test_the_drafter_that_the_notes_name_exists() -> None:
    assert "the drafter selector" in " ".join(advise_report(CostTable(None, "flat"))["notes"])
    assert parse("selector") == Single("selector")


def test_a_drafter_that_does_not_exist_would_be_noticed() -> None:
    for name in ("suffix>eagle", "medusas", "suffix+sufix", "datastore", "draft:"):
        with pytest.raises(ConfigError):
            parse(name)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("costs", [None, STEP, LINEAR])
def test_the_figures_of_an_advice_are_those_of_the_formula(
    use: str, costs: PassCosts | None
) -> None:
    situation = Situation(0.05, costs, batch_size=2, max_gamma=12)
    given = advice(use, situation, 0.8)
    best = best_gamma(0.8, 0.05, costs, 12, batch_size=2)
    assert given["num_speculative_tokens"] == best
    fastest = speedup(0.8, best, 0.05, costs, batch_size=2)
    assert given["speedup"] == pytest.approx([fastest] * 2, abs=1e-3)
    published = advice(use, situation)
    assert published["alpha"] == list(USES[use].published_alpha)


def test_a_draft_model_for_chat_is_held_against_the_break_even() -> None:
    most = break_even_epsilon(0.65, STEP)
    assert f"less than {most:.2f} of a target pass" in here("chat", STEP, 0.65)
    assert "not even a free one" in here("chat", LINEAR, 0.65)


def test_short_drafts_make_a_stream_even_only_where_passes_rise_gently() -> None:
    gentle = here("streaming", GENTLE, 0.9)
    longest = max(g for g in range(17) if round_cost(g, 0.0, GENTLE) <= 1.5)
    assert f"drafts of up to {longest} tokens keep it within 1.5" in gentle
    step = here("streaming", STEP, 0.9)
    assert "waits 1.75 plain passes with a draft of 1 token" in step
    assert "short drafts do not make it even" in step
    assert "plain decoding is the steadiest" in here("streaming", LINEAR, 0.5)


def test_a_batch_is_told_to_draft_where_it_pays_and_not_to_where_it_does_not() -> None:
    paying = advice("batch", Situation(0.0, STEP, batch_size=2), 0.7)
    assert (paying["drafter"], paying["alternatives"]) == ("suffix", ["none"])
    assert paying["speedup"][0] > 1.1
    full = advice("batch", Situation(0.0, LINEAR, batch_size=2), 0.7)
    assert full["drafter"] == "none"
    assert "no draft pays" in full["here"]
    assert "With 16 rows" in advice("batch", Situation(0.0, STEP), 0.7)["here"]


def test_published_claims_that_the_formula_does_not_give_are_named() -> None:
    assert (
        "Published for a small draft model: 2x to 2.5x"
        in advice("chat", Situation(0, STEP))["difference"]
    )
    # What the published acceptance gives on its own lies within the claim for one case only.
    claims = {use: advice(use, Situation(0.0, None, max_gamma=4))["difference"] for use in USES}
    assert claims["chat"] is not None
    assert "2.2x to 2.9x" in claims["chat"]
    assert claims["code"] is not None
    assert "3.7x to 4.3x" in claims["code"]


def test_a_hyphen_does_for_an_underscore_and_other_names_are_refused() -> None:
    assert check_use(" Long-Text ") == "long_text"
    with pytest.raises(ConfigError, match="unknown use 'cod'; did you mean 'code'"):
        check_use("cod")
