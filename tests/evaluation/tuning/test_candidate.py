from __future__ import annotations

import itertools

import pytest

from specrag.decoding.budget import POLICIES, SpeculationConfig
from specrag.evaluation.tuning.candidate import Candidate, family
from tests.evaluation.tuning.played import result


@pytest.mark.parametrize(
    ("drafter", "expected"),
    [
        ("suffix", "copying"),
        ("selector", "copying"),
        ("suffix+prompt_lookup", "copying"),
        ("draft:m", "model"),
        ("draft:m>draft:n", "model"),
        ("suffix>draft:m", "both"),
        ("suffix+draft:m", "both"),
        ("auto:code=suffix,text=draft:m", "both"),
        ("auto:code=suffix,text=prompt_lookup", "copying"),
    ],
)
def test_drafters_have_a_family(drafter: str, expected: str) -> None:
    assert family(drafter) == expected


def test_different_candidates_have_different_names() -> None:
    grid = itertools.product(["suffix", "draft:m"], [1, 2, 15], [1, 2, 4], POLICIES)
    candidates = [Candidate(*parts) for parts in grid]
    assert len({candidate.name for candidate in candidates}) == len(candidates)
    assert Candidate("suffix", 1, 1, "fixed").name == "suffix, fixed, 1 token, chain"


def test_the_simpler_comes_first() -> None:
    ordered = [
        Candidate("suffix", 15, 1, "goodput"),
        Candidate("suffix", 15, 4, "goodput"),
        Candidate("suffix", 2, 1, "recent_acceptance"),
        Candidate("suffix", 2, 1, "fixed"),
        Candidate("suffix", 4, 1, "fixed"),
        Candidate("suffix+prompt_lookup", 1, 1, "goodput"),
        Candidate("draft:m", 1, 1, "goodput"),
        Candidate("draft:m", 2, 1, "goodput"),
        Candidate("suffix>draft:m", 1, 1, "goodput"),
        Candidate("draft:n>draft:m", 1, 1, "goodput"),
    ]
    keys = [candidate.complexity for candidate in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_a_config_keeps_what_is_not_tuned() -> None:
    base = SpeculationConfig(7, min_acceptance=0.2, strict=True)
    made = Candidate("suffix", 3, 2, "fixed").config(base)
    assert made == SpeculationConfig(
        3, branching=2, policy="fixed", min_acceptance=0.2, strict=True
    )


def test_only_an_interval_above_one_beats_plain_decoding() -> None:
    candidate = Candidate("suffix", 3, 1, "fixed")
    assert result(candidate, 1.2).beats_plain
    assert not result(candidate, 1.04).beats_plain
    assert not result(candidate, 1.5, around=None).beats_plain
    assert not result(candidate, 0.9).beats_plain
    assert not result(candidate, 1.5, num_prompts=4).beats_plain
    assert result(candidate, 1.5).interval == "1.50x (1.45 to 1.55)"
    assert result(candidate, 1.5, around=None).interval == "1.50x"
