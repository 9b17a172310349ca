"""Cascades: each drafter proposes to the next larger model, and only the target decides."""

from __future__ import annotations

from collections.abc import Sequence

from specrag.decoding.drafter import Drafter
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.errors import ConfigError


def cascade(levels: Sequence[Drafter]) -> Drafter:
    """Nests drafters: the first proposes to the second, that one to the third, the last drafts.

    Each model keeps of a proposal what it would have said itself, as the target does, and so
    drafts several tokens in one pass of its own. "Cascade Speculative Drafting" (Chen et al.,
    2024) calls it the vertical cascade.

    Args:
        levels: The cheapest first. All but the first must be models; they are not changed.

    Returns:
        The drafter for the target.

    Raises:
        ConfigError: There is no level, or one behind the first is no model.
    """
    if not levels:
        raise ConfigError("a cascade needs at least one drafter, got none")
    drafter = levels[0]
    for level in levels[1:]:
        if not isinstance(level, DraftModelDrafter):
            raise ConfigError(
                f"{level.name!r} cannot check what {drafter.name!r} drafts: it is no model",
                hint="put it first; behind the first level of a cascade come draft models only",
            )
        if level.drafter is not None:
            raise ConfigError(
                f"{level.name!r} has a drafter of its own already, {level.drafter.name!r}",
                hint="name every level of a cascade once, the cheapest first",
            )
        drafter = level.with_drafter(drafter)
    return drafter
