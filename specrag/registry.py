"""Names for replaceable parts: a name maps to a factory that is loaded when first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, cast

from specrag.errors import ConfigError, suggest

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to objects that live in modules imported only on demand.

    Args:
        kind: What is registered, for error messages (``drafter``, ``gate`` ...).
        targets: Name to ``module:attribute``; the module is imported on first use.
    """

    def __init__(self, kind: str, targets: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets = dict(targets)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._targets))

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def get(self, name: str) -> T:
        """Returns the object registered under a name, importing its module.

        Args:
            name: A registered name.

        Raises:
            ConfigError: The name is not registered; the message suggests the nearest.
        """
        if name not in self._targets:
            raise ConfigError(f"unknown {self.kind} {name!r}; {suggest(name, self._targets)}")
        module, _, attribute = self._targets[name].partition(":")
        return cast("T", getattr(importlib.import_module(module), attribute))
