from __future__ import annotations

import json

import pytest

from specrag.errors import MissingExtraError
from specrag.extras import require_extra


def test_an_installed_module_is_returned() -> None:
    assert require_extra("json", "server") is json


def test_a_missing_module_names_the_extra() -> None:
    with pytest.raises(MissingExtraError, match="'no_such_module'") as caught:
        require_extra("no_such_module", "server")
    assert caught.value.hint == "pip install 'specrag[server]'"


def test_the_missing_package_is_named_not_its_submodule() -> None:
    with pytest.raises(MissingExtraError, match="'no_such_module'"):
        require_extra("no_such_module.sub", "eval")
