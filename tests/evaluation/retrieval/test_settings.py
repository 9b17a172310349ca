"""Settings that cannot be measured with are refused with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from specrag.errors import ConfigError
from specrag.evaluation.retrieval.settings import RetrievalSettings, configuration
from tests.evaluation.retrieval.found import Told, dataset


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"k": ()}, "no number of documents"),
        ({"k": (5, 0)}, "at least 1, got 0"),
        ({"k": (5, 5)}, "named twice: 5, 5"),
        ({"gain": "linar"}, "unknown gain 'linar'; did you mean 'linear'"),
    ],
)
def test_bad_settings_are_refused(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        RetrievalSettings(**changed)


def test_as_many_are_looked_for_as_any_measure_needs() -> None:
    assert RetrievalSettings((1, 5)).depth == 10  # nDCG@10
    assert RetrievalSettings((1, 30)).depth == 30


def test_the_configuration_tells_what_the_figures_depend_on() -> None:
    told = configuration({"a": Told({}, "one")}, dataset({"q": {"d": 1.0}}), RetrievalSettings())
    assert told["retrievers"] == {"a": {"index": "one", "fingerprint": "told:one"}}
    assert told["settings"] == {"k": [1, 5, 10, 100], "gain": "linear", "seed": 0}
    assert told["dataset"]["sha256"] == "70"
