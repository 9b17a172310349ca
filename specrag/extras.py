"""The one place that turns a missing optional dependency into an install hint."""

from __future__ import annotations

import importlib
from types import ModuleType

from specrag.errors import MissingExtraError


def require_extra(module: str, extra: str) -> ModuleType:
    """Imports an optional dependency.

    Args:
        module: Name of the module to import, such as ``uvicorn``.
        extra: The extra of this package that installs it, such as ``server``.

    Returns:
        The imported module.

    Raises:
        MissingExtraError: The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this needs the package {error.name!r}, which is not installed",
            hint=f"pip install 'specrag[{extra}]'",
        ) from error
