from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from specrag.errors import ConfigError
from specrag.registry import Registry


@pytest.fixture
def registry() -> Registry[Callable[..., object]]:
    return Registry("thing", {"dump": "json:dumps", "absent": "no_such_module:x"})


def test_a_name_gives_the_object(registry: Registry[Callable[..., object]]) -> None:
    assert registry.get("dump")([1]) == "[1]"


def test_names_are_sorted_and_tested_without_importing(
    registry: Registry[Callable[..., object]],
) -> None:
    assert list(registry) == ["absent", "dump"]
    assert "absent" in registry
    assert "other" not in registry
    assert "no_such_module" not in sys.modules


def test_an_unknown_name_suggests_the_nearest(registry: Registry[Callable[..., object]]) -> None:
    with pytest.raises(ConfigError, match="unknown thing 'dmp'; did you mean 'dump'"):
        registry.get("dmp")


def test_a_module_is_imported_when_its_name_is_asked_for(
    registry: Registry[Callable[..., object]],
) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        registry.get("absent")


def test_later_changes_of_the_mapping_do_not_reach_the_registry() -> None:
    targets = {"dump": "json:dumps"}
    registry: Registry[object] = Registry("thing", targets)
    targets.clear()
    assert list(registry) == ["dump"]
