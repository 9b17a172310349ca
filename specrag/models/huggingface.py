"""The adapter that makes an unmodified transformers causal LM a target."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from specrag.errors import ModelError
from specrag.loading import model_loading
from specrag.models.kv_cache import KVCache
from specrag.models.target import ModelOutput, TargetModel, TreePass
from specrag.models.tokenizer import ModelFiles, first_line

PREFILL_CHUNK = 512
"""Prompt tokens per pass: bounds the mask and the activations, costs nothing in speed."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class HuggingFaceTarget(TargetModel):
    """A transformers causal LM, used as it is.

    Trees go in as an additive 4-D attention mask with explicit positions, the cache is ours,
    features come out through forward hooks.

    Args:
        model: A loaded causal LM in evaluation mode.
        name: What users call it.

    Raises:
        ModelError: The architecture keeps state that cannot be rolled back, or does not take the
            positions of a tree.
    """

    def __init__(self, model: Any, name: str) -> None:
        self.model = model.eval()
        self.name = name
        config = model.config.get_text_config()
        self.vocab_size = int(config.vocab_size)
        self.num_layers = int(config.num_hidden_layers)
        self.max_context = _max_context(config)
        self.eos_token_ids = _eos_token_ids(model)
        self._fingerprint: str | None = None
        parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters
        # The keyword changed its name within transformers 5.
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"
        self._trims_logits = "logits_to_keep" in parameters
        _refuse_state(config, name)
        _refuse_fixed_positions(config, parameters, name)

    @classmethod
    def load(
        cls, source: ModelFiles, name: str, *, dtype: str = "auto", device: str = "auto"
    ) -> HuggingFaceTarget:
        """Loads a model from a folder, a GGUF file or the hub.

        Args:
            source: Where the model lies.
            name: What users call it.
            dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for bfloat16 where the
                machine computes in it and float32 elsewhere.
            device: A torch device, or ``auto`` for the first accelerator, else the CPU.

        Raises:
            ModelError: It cannot be read, does not fit, or is no causal LM.
        """
        place = pick_device(device)
        options: dict[str, Any] = {"dtype": pick_dtype(dtype, place)}
        if source.gguf_file:
            options["gguf_file"] = source.gguf_file
        try:
            with model_loading():
                model = AutoModelForCausalLM.from_pretrained(source.path, **options)
            model = model.to(place)
        except Exception as error:  # readers of a damaged file raise what they like
            raise ModelError(
                f"cannot load the model {name!r}: {first_line(error)}",
                hint="name an embedded model, a local folder, a .gguf file or a hub name",
            ) from error
        return cls(model, name)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return torch.device(next(iter(self.model.parameters())).device)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        dtype: torch.dtype = next(iter(self.model.parameters())).dtype
        return dtype

    @property
    def fingerprint(self) -> str:
        """A digest of sampled weights; neither name nor dtype counts."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for key, parameter in self.model.named_parameters():
                flat = parameter.detach().reshape(-1)
                # Rounded alike, whatever the precision that the weights were loaded in.
                sample = flat[:: max(1, flat.numel() // 16)][:16].bfloat16().float().cpu()
                digest.update(key.encode() + sample.numpy().tobytes())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    def new_cache(self, batch_size: int, capacity: int = 512) -> KVCache:
        """Returns an empty cache for this model.

        Args:
            batch_size: Number of rows.
            capacity: Tokens to reserve for each row.
        """
        return KVCache(self.num_layers, batch_size, min(capacity, self.max_context))

    @torch.inference_mode()
    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: KVCache, num_logits: int = 1
    ) -> ModelOutput:
        """Evaluates prompts in chunks, see the contract.

        Args:
            prompts: Token ids of each row.
            cache: The prompts are appended to it.
            num_logits: Last positions of each row to return logits for.

        Returns:
            Logits ``[batch, num_logits, vocab]`` and features of the same positions.
        """
        wanted = [
            [max(0, len(prompt) - num_logits + i) for i in range(num_logits)] for prompt in prompts
        ]
        found: dict[tuple[int, int], tuple[torch.Tensor, dict[int, torch.Tensor]]] = {}
        for start in range(0, max(len(prompt) for prompt in prompts), PREFILL_CHUNK):
            pieces = [list(prompt[start : start + PREFILL_CHUNK]) for prompt in prompts]
            width = max(len(piece) for piece in pieces)
            columns = sorted({c - start for row in wanted for c in row if 0 <= c - start < width})
            output = self._run(_chains(pieces, width), cache, columns)
            cache.commit([range(len(piece)) for piece in pieces])
            for row, positions in enumerate(wanted):
                for slot, column in enumerate(columns):
                    if column + start in positions and column < len(pieces[row]):
                        features = {k: v[row, column] for k, v in output.features.items()}
                        found[row, column + start] = (output.logits[row, slot], features)
        return _collect(found, wanted)

    @torch.inference_mode()
    def forward(self, tree_pass: TreePass, cache: KVCache) -> ModelOutput:
        """Evaluates one tree for each row, see the contract.

        Args:
            tree_pass: The nodes, ``[batch, nodes]``.
            cache: Committed tokens of each row; the nodes become pending in it.

        Returns:
            Logits ``[batch, nodes, vocab]`` and the features asked for.
        """
        return self._run(tree_pass, cache, None)

    def _run(self, tree_pass: TreePass, cache: KVCache, columns: list[int] | None) -> ModelOutput:
        """Runs the model over nodes; ``columns`` names those whose logits are needed."""
        cache.begin_pass(tree_pass.token_ids.shape[1])
        lengths = torch.tensor(cache.lengths, device=self.device).unsqueeze(1)
        options: dict[str, Any] = {self._cache_keyword: cache}
        if columns is not None and self._trims_logits:
            options["logits_to_keep"] = torch.tensor(columns, dtype=torch.long, device=self.device)
        with self._captured_features() as features:
            output = self.model(
                input_ids=tree_pass.token_ids.to(self.device),
                position_ids=lengths + tree_pass.depths.to(self.device),
                attention_mask=self._mask(tree_pass.visible.to(self.device), cache),
                use_cache=True,
                **options,
            )
        logits = output.logits
        if columns is not None and not self._trims_logits:
            logits = logits[:, columns]
        return ModelOutput(logits, features)

    def _mask(self, visible: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Builds the additive mask ``[batch, 1, nodes, max_length + nodes]``.

        A row attends to its own committed slots and, among its pending nodes, to ancestors.
        """
        batch, nodes, _ = visible.shape
        total = cache.max_length + nodes
        # The lowest finite value, not -inf: a row of -inf only would give NaN.
        lowest = torch.finfo(self.dtype).min
        mask = torch.full((batch, 1, nodes, total), lowest, dtype=self.dtype, device=self.device)
        for row, length in enumerate(cache.lengths):
            mask[row, 0, :, :length] = 0
            mask[row, 0, :, length : length + nodes].masked_fill_(visible[row], 0)
        return mask

    @contextmanager
    def _captured_features(self) -> Iterator[dict[int, torch.Tensor]]:
        """Collects the output of the wanted layers during one pass."""
        captured: dict[int, torch.Tensor] = {}
        layers = _decoder_layers(self.model) if self.feature_layers else []
        handles = [
            layers[index].register_forward_hook(_keep(captured, index))
            for index in self.feature_layers
        ]
        try:
            yield captured
        finally:
            for handle in handles:
                handle.remove()


def pick_device(device: str) -> torch.device:
    """Returns the torch device for a user's choice.

    Args:
        device: A torch device string, or ``auto``.

    Raises:
        ModelError: torch does not know it, or this machine has none.
    """
    if device != "auto":
        try:
            return torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:
            raise ModelError(
                f"cannot use the device {device!r}: {first_line(error)}",
                hint="allowed: auto, cpu, and cuda or another accelerator of this machine",
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Returns the torch dtype for a user's choice.

    Args:
        dtype: A name of ``DTYPES``, or ``auto``.
        device: Where the model will run.

    Raises:
        ModelError: The name is unknown.
    """
    if dtype == "auto":
        return torch.bfloat16 if device.type != "cpu" or _cpu_has_bfloat16() else torch.float32
    if dtype not in DTYPES:
        raise ModelError(f"unknown dtype {dtype!r}; allowed: auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _cpu_has_bfloat16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability()
    if not capabilities.startswith("AVX512"):
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _max_context(config: Any) -> int:
    """Longest context in which attention is full: beyond a sliding window it would not be."""
    rope = getattr(config, "rope_parameters", None) or {}
    limits = [
        getattr(config, "max_position_embeddings", None),
        getattr(config, "sliding_window", None),
    ]
    if rope.get("rope_type") == "longrope":
        # Beyond it the rotation of every earlier key changes, those in the cache included.
        limits.append(rope.get("original_max_position_embeddings"))
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else 2048


def _eos_token_ids(model: Any) -> tuple[int, ...]:
    value = getattr(model.generation_config, "eos_token_id", None)
    if value is None:
        value = getattr(model.config, "eos_token_id", None)
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)


def _refuse_state(config: Any, name: str) -> None:
    """Speculation rolls tokens back; recurrent state has no such operation here."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    odd = sorted(kinds - {"full_attention", "sliding_attention"})
    if odd or getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"the model {name!r} has {', '.join(odd) or 'an encoder'}, which cannot be rolled back",
            hint="use a decoder-only model with attention layers, such as Llama, Qwen or Mistral",
        )


def _refuse_fixed_positions(config: Any, parameters: Mapping[str, Any], name: str) -> None:
    """The nodes of a tree lie side by side in the cache, but not in the text."""
    reasons = {
        "takes no position_ids": "position_ids" not in parameters,
        "takes no cache": not {"cache", "past_key_values"} & set(parameters),
        "derives positions from the attention mask (ALiBi)": getattr(config, "alibi", False),
        "counts a window in cache slots": "local" in getattr(config, "attention_layers", ()),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ModelError(
                f"the model {name!r} {reason}, so it cannot evaluate a tree of drafts",
                hint="use a decoder-only model with rotary positions, such as Llama or Qwen",
            )


def _decoder_layers(model: Any) -> Any:
    decoder = model.get_decoder()
    for attribute in ("layers", "h", "blocks"):
        if hasattr(decoder, attribute):
            return getattr(decoder, attribute)
    raise ModelError(f"cannot find the layers of {type(decoder).__name__}")


def _keep(captured: dict[int, torch.Tensor], index: int) -> Callable[..., None]:
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        captured[index] = output[0] if isinstance(output, tuple) else output

    return hook


def _chains(pieces: Sequence[Sequence[int]], width: int) -> TreePass:
    """A prompt is a tree without branches: causal visibility, padded at the end."""
    token_ids = torch.zeros(len(pieces), width, dtype=torch.long)
    for row, piece in enumerate(pieces):
        token_ids[row, : len(piece)] = torch.tensor(piece, dtype=torch.long)
    # Padding repeats the last position: one further on might lie outside the context.
    ends = torch.tensor([max(0, len(piece) - 1) for piece in pieces]).unsqueeze(1)
    depths = torch.arange(width).expand(len(pieces), width).minimum(ends)
    visible = torch.ones(width, width, dtype=torch.bool).tril().expand(len(pieces), width, width)
    return TreePass(token_ids, depths, visible)


def _collect(
    found: dict[tuple[int, int], tuple[torch.Tensor, dict[int, torch.Tensor]]],
    wanted: Sequence[Sequence[int]],
) -> ModelOutput:
    logits = torch.stack(
        [torch.stack([found[row, c][0] for c in cols]) for row, cols in enumerate(wanted)]
    )
    layers = found[0, wanted[0][-1]][1]
    features = {
        layer: torch.stack(
            [torch.stack([found[r, c][1][layer] for c in cols]) for r, cols in enumerate(wanted)]
        )
        for layer in layers
    }
    return ModelOutput(logits, features)
