"""Which layers of the target an EAGLE-3 head reads, by the conventions of its format."""

from __future__ import annotations

from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.heads.config import default_feature_layers
from specrag.errors import ModelError
from specrag.models.target import FINAL_NORM

_KEYS = ("eagle_aux_hidden_state_layer_ids", "target_layer_ids")

Layers = tuple[int, ...]


def feature_layer_readings(
    settings: Settings, count: int, num_layers: int, name: str, notes: list[str]
) -> tuple[Layers, ...]:
    """Returns the layers that a head may read, the likeliest reading first.

    Files number either blocks by what leaves them, or borders between blocks by what crosses
    them: border i is what leaves block i - 1. NVIDIA's files, whose first number is 1, do the
    first; others the second. A file that says nothing means the layers of the authors.

    Args:
        settings: Of the head.
        count: Layers that the head's tensors take in.
        num_layers: Decoder layers of the target.
        name: Of the head, for messages.
        notes: What was inferred is added.

    Returns:
        Each reading in blocks, all of which the target has unless the file names others.

    Raises:
        ModelError: The file says nothing and the head does not read three layers, or it names
            another number of layers than it reads.
    """
    ids = next((found for key in _KEYS if (found := settings.integers(key))), None)
    if ids is None:
        if count != 3:
            raise ModelError(
                f"the draft head {name!r} reads {count} layers of the target, and its config.json "
                "does not tell which",
                hint="state eagle_aux_hidden_state_layer_ids there",
            )
        layers: Layers = default_feature_layers(num_layers)
        notes.append(f"feature layers taken to be those of the authors: {layers}")
        return _plausible([layers, _moved(layers, 1), _moved(layers, -1)], num_layers)
    if len(ids) != count:
        raise ModelError(
            f"the draft head {name!r} reads {count} layers of the target, and its config.json "
            f"names {len(ids)}: {list(ids)}",
            hint="the file belongs to another head; fetch it again",
        )
    blocks, borders = ids, _moved(ids, -1)
    # Border 0 would be the embeddings, which no head reads.
    # A last border is as many as there are layers, which no layer is numbered.
    from_one = ids[0] == 1 and settings.speculators_type is None and max(ids) < num_layers
    by_blocks = min(ids) == 0 or from_one
    first, second = (blocks, borders) if by_blocks else (borders, blocks)
    notes.append(f"feature layers {list(ids)} read as the outputs of layers {first}")
    return _plausible([first, second], num_layers)


def _moved(layers: Layers, step: int) -> Layers:
    return tuple(layer + step for layer in layers)


def _plausible(readings: list[Layers], num_layers: int) -> tuple[Layers, ...]:
    """The first, right or wrong, and of the others those that the target has."""
    last = num_layers - 1
    fit = [layers for layers in readings[1:] if all(0 <= at <= last for at in layers)]
    # Some extractors take the state behind the last layer after the final norm.
    normed = [
        tuple(FINAL_NORM if layer == last else layer for layer in layers)
        for layers in (readings[0], *fit)
        if last in layers
    ]
    return tuple(dict.fromkeys([readings[0], *fit, *normed]))
