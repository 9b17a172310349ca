"""Which kind of target a model becomes, told before the first token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.errors import ModelError
from specrag.loading import model_loading
from specrag.models import devices, loader
from specrag.models.embedded import ModelSource
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.loader import KNOWN, load_target, probe, target_for
from specrag.models.stateful import StatefulTarget
from specrag.models.target import ModelOutput, TreePass
from specrag.models.tiny import tiny_target
from tests.architectures import PLAIN, SPECULATING, new_model, target_of

OPTIONS: dict[str, Any] = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2} | {
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 48,
}


def test_the_known_types_are_those_that_the_tests_compare() -> None:
    assert {kind for kind, _ in SPECULATING.values()} == KNOWN


@pytest.mark.parametrize("name", SPECULATING)
def test_a_known_architecture_speculates_unprobed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "probe", lambda target: pytest.fail("probed"))

    target = target_for(target_of(name).model, name)
    assert isinstance(target, HuggingFaceTarget)
    assert target.no_speculation == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mamba", "mamba keeps a recurrent state, which cannot be rolled back"),
        ("falcon_h1", "falcon_h1 keeps a recurrent state, which cannot be rolled back"),
        ("lfm2", "conv layers, which cannot be rolled back"),
        ("bloom", "takes no position_ids"),
        ("mpt", "takes no position_ids"),
        ("gpt_neo", "counts a window in cache slots"),
        ("openai-gpt", "takes no cache"),
    ],
)
def test_other_architectures_decode_plainly_and_say_why(name: str, reason: str) -> None:
    target = target_for(target_of(name).model, name)

    assert isinstance(target, StatefulTarget)
    assert reason in target.no_speculation
    assert name in PLAIN


def test_linear_biases_for_positions_are_told_from_the_configuration() -> None:
    model = new_model("falcon", **OPTIONS, alibi=True)

    assert "ALiBi" in target_for(model, "falcon").no_speculation


@pytest.mark.parametrize("kind", ["falcon", "stablelm", "gpt_bigcode", "codegen", "gptj"])
def test_an_architecture_that_is_not_known_is_probed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = []

    def noted(target: HuggingFaceTarget) -> str:
        probed.append(target.name)
        return probe(target)

    monkeypatch.setattr(loader, "probe", noted)
    sizes = OPTIONS if kind in ("falcon", "stablelm") else {"n_embd": 32, "n_layer": 2, "n_head": 4}
    rotary = {"rotary_dim": 4} if kind in ("codegen", "gptj") else {}
    target = target_for(new_model(kind, **sizes | {"vocab_size": 40} | rotary), kind)

    assert probed == [kind]
    assert target.no_speculation == ""


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_a_model_that_fills_gaps_is_refused_unless_it_is_made_a_decoder(kind: str) -> None:
    options = OPTIONS | {"max_position_embeddings": 64, "pad_token_id": 0}

    with pytest.raises(ModelError, match=f"'mine' is no causal LM: as configured, {kind} sees"):
        target_for(new_model(kind, **options), "mine")
    target_for(new_model(kind, **options, is_decoder=True), "mine")


def test_a_known_type_that_is_made_to_see_later_tokens_is_refused() -> None:
    options = OPTIONS | {"head_dim": 8, "use_bidirectional_attention": True}

    with pytest.raises(ModelError, match="gemma3_text sees later tokens"):
        target_for(new_model("gemma3_text", **options), "mine")


class SeesSiblings(HuggingFaceTarget):
    """A model that lets each node see all before it, as if a tree were a chain."""

    def forward(self, tree_pass: TreePass, *args: Any, **kwargs: Any) -> ModelOutput:
        nodes = tree_pass.token_ids.shape[1]
        visible = torch.ones(1, nodes, nodes, dtype=torch.bool).tril()
        chain = TreePass(tree_pass.token_ids, tree_pass.depths, visible)
        return super().forward(chain, *args, **kwargs)


class CountsSlots(HuggingFaceTarget):
    """A model that takes the order of the nodes for their positions."""

    def forward(self, tree_pass: TreePass, *args: Any, **kwargs: Any) -> ModelOutput:
        nodes = torch.arange(tree_pass.token_ids.shape[1]).unsqueeze(0)
        chain = TreePass(tree_pass.token_ids, nodes, tree_pass.visible)
        return super().forward(chain, *args, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fault", [SeesSiblings, CountsSlots])
def test_the_probe_finds_wrong_masks_and_positions(
    fault: type[HuggingFaceTarget], dtype: torch.dtype
) -> None:
    model = new_model("llama", **OPTIONS).to(dtype)

    assert probe(HuggingFaceTarget(model, "good")) == ""
    assert "llama evaluates a tree otherwise than its paths" in probe(fault(model, "bad"))


def test_what_the_probe_finds_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "KNOWN", frozenset())
    monkeypatch.setattr(HuggingFaceTarget, "forward", lambda *_: 1 / 0)
    target = target_for(new_model("llama", **OPTIONS), "llama")

    assert isinstance(target, StatefulTarget)
    assert "llama cannot evaluate trees (division by zero)" in target.no_speculation


def test_a_saved_model_is_loaded_as_its_kind(tmp_path: Path) -> None:
    for name, model in [("trees", tiny_target().model), ("plain", target_of("mamba").model)]:
        with model_loading():
            model.save_pretrained(tmp_path / name)
    source = {name: ModelSource(str(tmp_path / name), None, name) for name in ("trees", "plain")}

    trees = load_target(source["trees"], "trees", dtype="float32", device="cpu")
    plain = load_target(source["plain"], "plain", dtype="bfloat16", device="cpu")
    assert isinstance(trees, HuggingFaceTarget)
    assert (trees.name, trees.dtype) == ("trees", torch.float32)
    assert isinstance(plain, StatefulTarget)
    assert (plain.name, plain.dtype) == ("plain", torch.bfloat16)
    assert trees.fingerprint == tiny_target().fingerprint


def test_weights_are_packed_on_demand_and_by_themselves_where_that_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_cpu_has_fbgemm", lambda: True)
    with model_loading():
        tiny_target().model.save_pretrained(tmp_path / "tiny")
        target_of("mamba").model.save_pretrained(tmp_path / "mamba")

    def kinds(name: str) -> dict[str, str]:
        source = ModelSource(str(tmp_path / name), None, name)
        asked = ("auto", "none", "float16")
        return {
            wanted: load_target(source, name, device="cpu", quantization=wanted).quantization
            for wanted in asked
        }

    # Of a model this small nothing waits for the products.
    assert kinds("tiny") == {"auto": "none", "none": "none", "float16": "float16"}
    monkeypatch.setattr(loader, "_WORTH_PACKING", 0)
    assert kinds("tiny") == {"auto": "float16", "none": "none", "float16": "float16"}
    source = ModelSource(str(tmp_path / "mamba"), None, "mamba")
    assert load_target(source, "mamba", device="cpu", quantization="auto").quantization == "none"
    with pytest.raises(ModelError, match="'mamba' cannot be packed as int8"):
        load_target(source, "mamba", device="cpu", quantization="int8")
