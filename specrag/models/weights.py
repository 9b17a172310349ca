"""Reading the network of a causal LM from a folder, a GGUF file or the hub."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers import AutoModelForCausalLM

from specrag.errors import ModelError
from specrag.loading import model_loading
from specrag.models.devices import pick_device, pick_dtype
from specrag.models.tokenizer import ModelFiles, first_line

_NAMED = 3


def load_network(
    source: ModelFiles, name: str, *, dtype: str = "auto", device: str = "auto"
) -> Any:
    """Loads a transformers causal LM, whole.

    Args:
        source: Where the model lies.
        name: What users call it.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for bfloat16 where the machine
            computes in it and float32 elsewhere.
        device: A torch device, or ``auto`` for the first accelerator, else the CPU.

    Raises:
        ModelError: It cannot be read, does not fit, lacks weights, or is no causal LM.
    """
    place = pick_device(device)
    options: dict[str, Any] = {"dtype": pick_dtype(dtype, place), "output_loading_info": True}
    if source.gguf_file:
        options["gguf_file"] = source.gguf_file
    try:
        with model_loading():
            network, report = AutoModelForCausalLM.from_pretrained(source.path, **options)
        network = network.to(place)
    except Exception as error:  # readers of a damaged file raise what they like
        raise ModelError(
            f"cannot load the model {name!r}: {first_line(error)}",
            hint="name an embedded model, a local folder, a .gguf file or a hub name",
        ) from error
    _refuse_missing(report["missing_keys"], name)
    return network.eval()


def _refuse_missing(keys: Iterable[str], name: str) -> None:
    """Weights that a file lacks are drawn at random: the model would run, and talk nonsense."""
    missing = sorted(keys)
    if missing:
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        raise ModelError(
            f"the model {name!r} lacks {len(missing)} of its weights: {named}",
            hint="fetch the whole model again; an adapter has to be merged into its base first",
        )
