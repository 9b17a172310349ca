from __future__ import annotations

import pytest

from specrag.drafters.catalog import make_drafter
from specrag.drafters.none import NoDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError


@pytest.mark.parametrize(("spec", "kind"), [("suffix", SuffixDrafter), (" none ", NoDrafter)])
def test_a_name_makes_its_drafter(spec: str, kind: type) -> None:
    assert type(make_drafter(spec)) is kind


@pytest.mark.parametrize("spec", ["sufix", "none+sufix"])
def test_an_unknown_name_is_refused_with_the_nearest_one(spec: str) -> None:
    with pytest.raises(ConfigError, match="unknown drafter 'sufix'; did you mean 'suffix'"):
        make_drafter(spec)


def test_an_empty_name_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ConfigError, match="allowed: none, prompt_lookup, suffix"):
        make_drafter("")


def test_combining_is_announced_for_later() -> None:
    with pytest.raises(ConfigError, match="'suffix\\+prompt_lookup' combines several; .* later"):
        make_drafter("suffix+prompt_lookup")
