"""PooledModel: the plain kind of sentence encoder, without the library that knows all kinds.

torch and transformers are imported when a model is loaded, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from specrag.retrieval.encoder_folder import EncoderFolder

if TYPE_CHECKING:
    import torch


class PooledModel:
    """A transformer whose token states are pooled to one vector of length 1.

    It computes what sentence-transformers computes for such a model. Importing that library takes
    some four seconds, which is long for one question.

    Args:
        folder: Of a model whose ``pooling`` is known.
        device: Torch device; the first CUDA device or the CPU by default.
    """

    def __init__(self, folder: EncoderFolder, device: str | None = None) -> None:
        import torch
        from transformers import AutoModel

        assert folder.pooling, "models with other parts are for sentence-transformers"
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._network: Any = AutoModel.from_pretrained(
            folder.transformer_path, dtype=torch.float32, local_files_only=True
        )
        self._network = self._network.to(place).eval()
        self._pooling = folder.pooling
        self._tokenizer = folder.new_tokenizer()
        limits = (folder.max_sequence_length, self._network.config.max_position_embeddings)
        self._tokenizer.enable_truncation(min(limit for limit in limits if limit))
        pad = int(self._network.config.pad_token_id or 0)
        self._tokenizer.enable_padding(pad_id=pad)

    def encode(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Returns one vector for each text, ``[num_texts, dimension]``.

        Args:
            texts: A batch; the longest one decides the width.
        """
        import torch

        encodings = self._tokenizer.encode_batch(texts)
        device = self._network.device
        token_ids = torch.tensor([found.ids for found in encodings], device=device)
        real = torch.tensor([found.attention_mask for found in encodings], device=device)
        with torch.inference_mode():
            output = self._network(input_ids=token_ids, attention_mask=real)
            pooled = self._pooled(output.last_hidden_state, real)
            vectors = torch.nn.functional.normalize(pooled, dim=1)
        found: npt.NDArray[np.float32] = vectors.cpu().numpy()
        return found

    def _pooled(self, states: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        if self._pooling == "cls":
            return states[:, 0]
        mask = real.unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
