from __future__ import annotations

import pytest

from specrag.decoding.budget import SpeculationConfig
from specrag.errors import ConfigError
from specrag.evaluation.speed.arm_spec import read_arm

SHARED = SpeculationConfig(num_speculative_tokens=9, branching=3)


def test_a_name_alone_takes_what_all_share() -> None:
    found = read_arm("suffix", SHARED)
    assert (found.drafter.name, found.config) == ("suffix", SHARED)


def test_a_line_changes_what_it_names() -> None:
    line = "  suffix+prompt_lookup branching=1 policy=fixed strict=true min_acceptance=0.5 "
    found = read_arm(line, SHARED)
    assert found.drafter.name == "suffix+prompt_lookup"
    assert found.config == SpeculationConfig(
        num_speculative_tokens=9, branching=1, policy="fixed", strict=True, min_acceptance=0.5
    )
    assert read_arm("suffix max_depth=4", SHARED).config.max_depth == 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sufix", "unknown drafter 'sufix'"),
        ("", "a drafter's name is missing"),
        (
            "suffix brancing=2",
            "unknown setting 'brancing=2' of a drafter; did you mean 'branching'",
        ),
        ("suffix branching", "branching must be a number, got ''"),
        ("suffix branching=many", "branching must be a number, got 'many'"),
        ("suffix strict=1", "strict must be true or false, got '1'"),
        ("suffix branching=0", "branching must be at least 1, got 0"),
        ("suffix policy=greedy", "unknown policy 'greedy'"),
    ],
)
def test_lines_that_cannot_be_meant_are_refused(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_arm(line, SHARED)
