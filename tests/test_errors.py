from __future__ import annotations

import pytest

from specrag import errors
from specrag.errors import SpecragError, suggest


def test_the_hint_stands_on_a_line_of_its_own() -> None:
    error = SpecragError("it broke", hint="mend it")
    assert (error.message, error.hint) == ("it broke", "mend it")
    assert str(error) == "it broke\n  hint: mend it"


def test_an_error_without_a_hint_is_its_message() -> None:
    assert str(SpecragError("it broke")) == "it broke"


@pytest.mark.parametrize(
    "name", ["ConfigError", "InputError", "ModelError", "IndexFormatError", "GateError"]
)
def test_each_error_is_caught_as_specrag_error(name: str) -> None:
    with pytest.raises(SpecragError, match="broke"):
        raise getattr(errors, name)("it broke")


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("sufix", ["suffix", "eagle"], "did you mean 'suffix'? allowed: eagle, suffix"),
        ("zzz", ["suffix", "eagle"], "allowed: eagle, suffix"),
        ("x", [], "allowed: (none)"),
        ("", ["a"], "allowed: a"),
    ],
)
def test_suggest_names_the_nearest_and_all_allowed(
    name: str, known: list[str], expected: str
) -> None:
    assert suggest(name, known) == expected
