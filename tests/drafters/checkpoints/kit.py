"""What tests of draft heads share: a target whose text a head can know, and heads that do.

The target names, after each token, the next one of a cycle through its vocabulary, whatever came
before. Its layers are random, so that each shows the token in its own way. The heads are made by
solving for their weights: they agree with the target on every token when they are read rightly,
and use everything that they are given: each feature layer, the embedding, the residual, and their
own state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from specrag.drafters.checkpoints.files import HeadFiles
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.target import FINAL_NORM
from specrag.models.tiny import tiny_tokenizer

VOCAB, WIDTH, LAYERS = 64, 64, 8
FEATURES = (1, 3, 4)
TOKENIZER = tiny_tokenizer(VOCAB)
SHAPE = TargetShape("cyclic", VOCAB, WIDTH, LAYERS, 16)
LAYER = DraftLayerConfig(WIDTH, 48, num_heads=4, num_kv_heads=2, head_dim=16, qkv_bias=True)

Tensors = dict[str, torch.Tensor]


def following(tokens: torch.Tensor, steps: int = 1) -> torch.Tensor:
    """The tokens that come so many places later; the cycle leaves out 0, which ends an answer."""
    return (tokens - 1 + steps) % (VOCAB - 1) + 1


TOKENS = torch.arange(1, VOCAB)


@cache
def cyclic_target() -> HuggingFaceTarget:
    """A target that goes through the cycle."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(5)
        model = LlamaForCausalLM(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()  # a token's states depend on it alone
        target = HuggingFaceTarget(model.float(), "cyclic")
        # All states behind the final norm are equally long, so each is likest to itself.
        model.lm_head.weight.zero_()
        model.lm_head.weight[following(TOKENS)] = states_of(target, FINAL_NORM)
    return target


def states_of(target: HuggingFaceTarget, layer: int) -> torch.Tensor:
    """What a layer makes of each token from 1 on, ``[vocab - 1, hidden]``."""
    cache = target.new_cache(len(TOKENS), 4)
    prompts = [[token] for token in TOKENS.tolist()]
    states = target.prefill(prompts, cache, feature_layers=(layer,)).features[layer]
    return torch.tensor(states[:, 0].numpy())


def embeddings() -> torch.Tensor:
    """The target's, ``[vocab, hidden]``."""
    weight: torch.Tensor = cyclic_target().model.get_input_embeddings().weight.detach()
    return weight


def _solved(inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """The weight of a linear layer that turns these inputs into these outputs."""
    weight: torch.Tensor = torch.linalg.lstsq(inputs.double(), outputs.double()).solution.T
    return weight.float().contiguous()


def _normed(states: torch.Tensor) -> torch.Tensor:
    return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + LAYER.norm_eps)


def _silent_layer(read: int) -> Tensors:
    """A layer that looks at its own position only, and adds next to nothing."""
    noise = torch.Generator().manual_seed(2)
    kv = LAYER.num_kv_heads * LAYER.head_dim
    sharp = torch.full((WIDTH,), 10.0)  # with positions turned, any other position is far away

    def small(*shape: int) -> torch.Tensor:
        return 0.01 * torch.randn(shape, generator=noise)

    return {
        "self_attn.q_proj.weight": torch.zeros(WIDTH, read),
        "self_attn.q_proj.bias": sharp,
        "self_attn.k_proj.weight": torch.zeros(kv, read),
        "self_attn.k_proj.bias": sharp[:kv].clone(),
        "self_attn.v_proj.weight": torch.zeros(kv, read),
        "self_attn.v_proj.bias": torch.zeros(kv),
        "self_attn.o_proj.weight": torch.zeros(WIDTH, WIDTH),
        "post_attention_layernorm.weight": torch.ones(WIDTH),
        "mlp.gate_proj.weight": small(LAYER.intermediate_size, WIDTH),
        "mlp.up_proj.weight": small(LAYER.intermediate_size, WIDTH),
        "mlp.down_proj.weight": small(WIDTH, LAYER.intermediate_size),
    }


def _layer_tensors(layer: Tensors) -> Tensors:
    return {f"layers.0.{key}": value for key, value in layer.items()}


@cache
def knowing_eagle3(vocabulary: tuple[int, ...] = tuple(range(VOCAB))) -> Eagle3Head:
    """An EAGLE-3 head that is always right about the tokens of its vocabulary.

    The feature of token x stands for the code of the token after it. The attention adds, by the
    embedding of token y, the code of the token after y, less that of y, which the residual holds.
    """
    target, noise = cyclic_target(), torch.Generator().manual_seed(1)
    # Three dimensions for all codes: what is left of a wrong one looks like another token.
    codes = torch.randn(VOCAB, 3, generator=noise)
    codes = codes / codes.norm(dim=-1, keepdim=True)
    place = torch.linalg.qr(torch.randn(WIDTH, 3, generator=noise)).Q
    scale = 32.0  # four times as long as a normed state
    layer = _silent_layer(2 * WIDTH)
    read = torch.cat([states_of(target, at) for at in FEATURES], dim=-1)
    inputs, change = _normed(embeddings()[TOKENS]), codes[following(TOKENS)] - codes[TOKENS]
    layer["self_attn.v_proj.weight"][:3, :WIDTH] = scale * _solved(inputs, change)
    layer["self_attn.o_proj.weight"][:, :3] = place
    tensors = {
        "fc.weight": _solved(read, scale * codes[following(TOKENS)] @ place.T),
        "input_layernorm.weight": torch.ones(WIDTH),
        "hidden_norm.weight": torch.ones(WIDTH),
        "norm.weight": torch.ones(WIDTH),
        "lm_head.weight": (codes @ place.T)[list(vocabulary)].contiguous(),
        **_layer_tensors(layer),
    }
    head = Eagle3Head(Eagle3Config(LAYER, VOCAB, len(vocabulary), WIDTH, FEATURES))
    head.load_state_dict(tensors)
    return head.eval().requires_grad_(False)


@cache
def knowing_eagle() -> EagleHead:
    """An EAGLE-1 head that always predicts the target's next state."""
    target = cyclic_target()
    states = states_of(target, FINAL_NORM)
    now, later = embeddings()[following(TOKENS)], states[TOKENS - 1]
    coming = states[following(TOKENS) - 1]
    tensors = {
        # The state of token x goes through as it is; the embedding of the next token adds what
        # turns it into that token's own state.
        "fc.weight": torch.cat([_solved(now, coming - later), torch.eye(WIDTH)], dim=1),
        "fc.bias": torch.zeros(WIDTH),
        **_layer_tensors(_silent_layer(WIDTH)),
    }
    head = EagleHead(EagleConfig(LAYER, VOCAB))
    head.load_state_dict(tensors)
    return head.eval().requires_grad_(False)


@cache
def knowing_medusa(num_heads: int = 3) -> MedusaHeads:
    """Medusa heads with LM heads of their own, each of which knows its token."""
    heads = MedusaHeads(MedusaConfig(WIDTH, VOCAB, num_heads, own_lm_head=True))
    states = states_of(cyclic_target(), FINAL_NORM)
    with torch.no_grad():
        for steps, head in enumerate(heads.lm_heads, start=2):
            weight = torch.zeros(VOCAB, WIDTH)
            weight[following(TOKENS, steps)] = states
            head.get_parameter("weight").copy_(weight)
    return heads.eval().requires_grad_(False)


def seeded(head: torch.nn.Module, seed: int = 0) -> Tensors:
    """Random tensors for each of a head's names."""
    noise = torch.Generator().manual_seed(seed)
    return {
        key: torch.randn(value.shape, generator=noise) / 4
        for key, value in sorted(head.state_dict().items())
    }


def eagle3_settings(**changes: Any) -> dict[str, Any]:
    """What a ``config.json`` of SafeAILab says of an EAGLE-3 head like ``LAYER``."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": LAYER.intermediate_size,
        "num_attention_heads": LAYER.num_heads,
        "num_key_value_heads": LAYER.num_kv_heads,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": LAYER.norm_eps,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB,
        **changes,
    }


def authors_names(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Our names of an EAGLE-3 head, turned into those of SafeAILab and SpecForge."""
    named = {}
    for key, value in tensors.items():
        if key.split(".")[0] in ("input_layernorm", "hidden_norm"):
            key = f"midlayer.{key}"
        named[key.replace("layers.0.", "midlayer.")] = value
    return named


def engine_names(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The same in the names of speculators and vLLM."""
    return {
        key.replace("midlayer.", "layers.0."): value
        for key, value in authors_names(tensors).items()
    }


def offsets(vocabulary: tuple[int, ...]) -> torch.Tensor:
    """``d2t`` of these tokens."""
    return torch.tensor(vocabulary) - torch.arange(len(vocabulary))


def files(
    tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None = None
) -> HeadFiles:
    """What reading such files would give."""
    return HeadFiles("head", config or {}, tensors)


def written(
    folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None = None
) -> Path:
    """A folder with such files."""
    folder.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
