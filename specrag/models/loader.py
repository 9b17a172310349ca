"""load_target: any transformers causal LM, with full speculation where its architecture allows."""

from __future__ import annotations

from typing import Any

import torch

from specrag.errors import ModelError
from specrag.models.devices import pick_device, pick_quantization
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.lean_target import LeanTarget, packing_obstacle
from specrag.models.stateful import StatefulTarget
from specrag.models.suitability import tree_obstacle
from specrag.models.target import TreePass
from specrag.models.tokenizer import ModelFiles, first_line
from specrag.models.transformers_target import TransformersTarget
from specrag.models.weights import load_network

KNOWN = frozenset(
    {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "phi3", "starcoder2", "gemma2"}
    | {"gemma3_text", "cohere2", "gpt_oss", "olmo2", "olmo3", "granite", "smollm3", "deepseek_v3"}
    | {"gpt_neox", "gpt2", "opt"}
)
"""Model types whose trees the tests compare with the plain model; others are probed at load."""

_WORTH_PACKING = 20_000_000
"""Parameters; the products of a smaller model are not what its passes wait for."""

_FINE, _ROUGH = 1e-3, 0.1
"""Largest relative error of probed logits, in float32 and below: rounding stays well under it."""


def load_target(
    source: ModelFiles,
    name: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    quantization: str = "none",
) -> TransformersTarget:
    """Loads a model from a folder, a GGUF file or the hub.

    Args:
        source: Where the model lies.
        name: What users call it.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for bfloat16 where the machine
            computes in it and float32 elsewhere.
        device: A torch device, or ``auto`` for the first accelerator, else the CPU.
        quantization: How weights are packed for a CPU: ``none``, ``float16``, ``int8``, or
            ``auto`` for what is fastest without a loss that shows, where that is known.

    Returns:
        A target; its ``no_speculation`` says why when it can only decode plainly.

    Raises:
        ModelError: It cannot be read, does not fit, lacks weights, is no decoder-only model, or
            cannot be packed.
        ConfigError: There is no such quantization, or it does not go with the rest.
    """
    wanted = pick_quantization(quantization, dtype, pick_device(device))
    if wanted != "none":
        dtype = "float32" if dtype == "auto" else dtype
    network = load_network(source, name, dtype=dtype, device=device)
    if wanted == "none" or (quantization == "auto" and not _worth_packing(network)):
        return target_for(network, name)
    return LeanTarget(network, name, wanted)


def target_for(model: Any, name: str) -> TransformersTarget:
    """Makes a loaded model a target, of the kind that its architecture allows.

    Args:
        model: A loaded causal LM.
        name: What users call it.

    Returns:
        A target; its ``no_speculation`` says why when it can only decode plainly.

    Raises:
        ModelError: The model has an encoder, or sees tokens that come later.
    """
    obstacle = tree_obstacle(model)
    if not obstacle and model.config.get_text_config().model_type in KNOWN:
        return HuggingFaceTarget(model, name)
    plain = StatefulTarget(model, name, obstacle)
    _refuse_foresight(plain)
    if obstacle:
        return plain
    target = HuggingFaceTarget(model, name)
    fault = probe(target)
    return StatefulTarget(model, name, fault) if fault else target


def _worth_packing(network: Any) -> bool:
    if packing_obstacle(network):
        return False
    size: int = sum(parameter.numel() for parameter in network.parameters())
    return size >= _WORTH_PACKING


@torch.inference_mode()
def _refuse_foresight(target: TransformersTarget) -> None:
    """A model that fills gaps reads what comes after them, and is no use for going on."""
    first = target.vocab_size // 2
    alone, followed = (_plain(target, [first, last, last])[0] for last in (1, 2))
    if not torch.allclose(alone.float(), followed.float(), atol=_ROUGH, rtol=_ROUGH):
        kind = target.model.config.get_text_config().model_type
        raise ModelError(
            f"the model {target.name!r} is no causal LM: as configured, {kind} sees later tokens",
            hint="use a decoder-only model, such as Llama, Qwen or Mistral",
        )


@torch.inference_mode()
def probe(target: HuggingFaceTarget) -> str:
    """Compares one small tree with the plain model on each of its paths.

    Args:
        target: A target of an architecture that nothing is known about.

    Returns:
        What was wrong; empty when the tree was evaluated rightly.
    """
    kind = target.model.config.get_text_config().model_type
    tokens = [(7919 * place + 13) % target.vocab_size for place in range(10)]
    prompt, root, left, right, below = tokens[:6], *tokens[6:]
    # The nodes of the left path do not lie side by side, and the right one must not be seen.
    tree_pass = TreePass(
        torch.tensor([[root, left, right, below]]),
        torch.tensor([[0, 1, 1, 2]]),
        torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]], dtype=torch.bool),
    )
    try:
        cache = target.new_cache(1)
        target.prefill([prompt], cache)
        logits = target.forward(tree_pass, cache).logits[0]
        long = _plain(target, [*prompt, root, left, below])
        short = _plain(target, [*prompt, root, right])
    except Exception as error:  # noqa: BLE001 - unknown code fails in its own ways
        return f"{kind} cannot evaluate trees ({first_line(error)})"
    expected = torch.stack([long[-3], long[-2], short[-1], long[-1]])
    distance = (logits - expected).float().norm(dim=-1) / expected.float().norm(dim=-1)
    # Asked this way round, so that values that are no numbers are a difference too.
    if bool((distance <= (_FINE if target.dtype == torch.float32 else _ROUGH)).all()):
        return ""
    return f"{kind} evaluates a tree otherwise than its paths, by {float(distance.max()):.1%}"


def _plain(target: TransformersTarget, token_ids: list[int]) -> torch.Tensor:
    inputs = torch.tensor([token_ids], device=target.device)
    logits: torch.Tensor = target.model(input_ids=inputs, use_cache=False).logits[0]
    return logits
