"""Settings: the fields of a head's config.json, flattened over the nestings of all formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.errors import ModelError

_NESTED = ("text_config", "transformer_layer_config", "eagle_config")
# The layer's own, not the head's.
_LAYER_ONLY = ("architectures",)


class Settings:
    """Reads fields by name and type; a field that is absent or null is None.

    ``speculators`` nests the layer in ``transformer_layer_config``, ModelOpt what EAGLE adds in
    ``eagle_config``; the outer field wins.

    Args:
        config: The content of ``config.json``.
        name: Of the head, for messages.
    """

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self._name = name
        self.fields: dict[str, Any] = {}
        for key in _NESTED:
            inner = config.get(key)
            if isinstance(inner, Mapping):
                self._add({k: v for k, v in inner.items() if k not in _LAYER_ONLY})
        self._add({key: value for key, value in config.items() if key not in _NESTED})
        kind = config.get("speculators_model_type")
        self.speculators_type = str(kind) if kind is not None else None
        layer = config.get("transformer_layer_config")
        self.layer_type = str(layer.get("model_type")) if isinstance(layer, Mapping) else None

    def _add(self, fields: Mapping[str, Any]) -> None:
        self.fields.update({key: value for key, value in fields.items() if value is not None})

    @property
    def architectures(self) -> str:
        """The names of the architectures, joined."""
        value = self.fields.get("architectures", ())
        return " ".join(map(str, value)) if isinstance(value, list) else str(value or "")

    def integer(self, key: str) -> int | None:
        """Returns a whole number of at least 1.

        Args:
            key: The field.

        Raises:
            ModelError: It is something else.
        """
        value = self.fields.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, value, "a whole number of at least 1")
        return value

    def number(self, key: str, default: float) -> float:
        """Returns a number above 0.

        Args:
            key: The field.
            default: Where it is absent.

        Raises:
            ModelError: It is something else.
        """
        value = self.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(key, value, "a number above 0")
        return float(value)

    def flag(self, key: str) -> bool | None:
        """Returns true or false.

        Args:
            key: The field.

        Raises:
            ModelError: It is something else.
        """
        value = self.fields.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def integers(self, key: str) -> tuple[int, ...] | None:
        """Returns a list of whole numbers, none negative.

        Args:
            key: The field.

        Raises:
            ModelError: It is something else.
        """
        value = self.fields.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(_is_index(item) for item in value):
            raise self._wrong(key, value, "a list of whole numbers of at least 0")
        return tuple(value)

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """Returns an object.

        Args:
            key: The field.

        Raises:
            ModelError: It is something else.
        """
        value = self.fields.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return value

    def _wrong(self, key: str, value: object, allowed: str) -> ModelError:
        return ModelError(
            f"{key} in the config.json of the draft head {self._name!r} must be {allowed}, got "
            f"{value!r}",
            hint="mend the file, or remove the field: most are inferred from the tensors",
        )


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
