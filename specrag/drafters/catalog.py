"""The drafters by the names that users type."""

from __future__ import annotations

from specrag.decoding.drafter import Drafter
from specrag.errors import ConfigError
from specrag.registry import Registry

DRAFTERS: Registry[type[Drafter]] = Registry(
    "drafter",
    {
        "none": "specrag.drafters.none:NoDrafter",
        "prompt_lookup": "specrag.drafters.prompt_lookup:PromptLookupDrafter",
        "suffix": "specrag.drafters.suffix:SuffixDrafter",
    },
)


def make_drafter(spec: str) -> Drafter:
    """Makes the drafter that a user named, with its default parameters.

    Args:
        spec: A registered name such as ``suffix``; ``a+b`` is reserved for a combination.

    Raises:
        ConfigError: A name is unknown, or several are combined.
    """
    names = [name.strip() for name in spec.split("+")]
    kinds = [DRAFTERS.get(name) for name in names]
    if len(kinds) > 1:
        raise ConfigError(
            f"drafter {spec!r} combines several; this comes in a later version",
            hint=f"name one of them, such as {names[0]!r}",
        )
    return kinds[0]()
