from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli.generate import generate
from specrag.cli.main import build_app
from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError
from specrag.models.tiny import tiny_target, tiny_tokenizer

PROMPT = "the sea is deep and the sea is"
SAMPLED = ["--temperature", "0.8", "--seed", "3", "--max-tokens", "20"]


@dataclasses.dataclass(slots=True)
class Loaded:
    """What was asked of `from_pretrained`, and the toy that it gave."""

    generator: SpeculativeGenerator
    calls: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    toy = Loaded(SpeculativeGenerator(tiny_target(vocab_size=96), tiny_tokenizer(96), "suffix"))

    def from_pretrained(
        target: str,
        drafter: str,
        *,
        dtype: str,
        quantization: str,
        config: SpeculationConfig,
        prefix_cache_mb: int,
    ) -> SpeculativeGenerator:
        assert prefix_cache_mb == 0  # one request, nothing to share
        toy.calls.append((target, drafter, dtype, config))
        return toy.generator

    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", from_pretrained)
    return toy


Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(loaded: Loaded) -> Run:
    def run(*args: str, stdin: str = "") -> tuple[str, str]:
        words = ["generate", *args]
        result = CliRunner().invoke(build_app(words), words, input=stdin, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout, result.stderr

    return run


def made(loaded: Loaded, prompt: Any, params: SamplingParams | None = None) -> Generation:
    result = loaded.generator.generate(prompt, params)
    assert isinstance(result, Generation)
    return result


def chat(text: str, system: str | None = None) -> list[dict[str, str]]:
    turns = [("system", system), ("user", text)]
    return [{"role": role, "content": said} for role, said in turns if said]


def test_json_holds_the_whole_generation(run: Run, loaded: Loaded) -> None:
    printed = json.loads(run(PROMPT, *SAMPLED, "--json")[0])
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=20)
    expected = made(loaded, chat(PROMPT), params)
    assert printed["text"] == expected.text
    assert printed["token_ids"] == list(expected.token_ids)
    assert printed["logprobs"] == pytest.approx(expected.logprobs)
    assert printed["finish_reason"] == expected.finish_reason
    assert printed["usage"] == {
        "prompt_tokens": expected.num_prompt_tokens,
        "completion_tokens": len(expected.token_ids),
    }
    counters = dataclasses.asdict(expected.stats)
    length = round(expected.stats.mean_acceptance_length, 4)
    assert printed["speculation"] == {**counters, "mean_acceptance_length": length}
    assert set(printed["timings"]) == {
        "prefill_ms",
        "draft_ms",
        "verify_ms",
        "decode_ms",
        "tokens_per_second",
    }
    assert (printed["seed"], printed["model"], printed["drafter"]) == (3, "tiny-0", "suffix")


def test_the_text_is_on_stdout_and_the_figures_on_stderr(run: Run, loaded: Loaded) -> None:
    text, figures = run(PROMPT, "--max-tokens", "20")
    expected = made(loaded, chat(PROMPT), SamplingParams(max_tokens=20))
    assert text == f"{expected.text}\n"
    stats = expected.stats
    assert figures.startswith(f"{len(expected.token_ids)} tokens, ")
    assert f"mean acceptance length {stats.mean_acceptance_length:.2f}, " in figures
    accepted = f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} drafted tokens accepted"
    assert f"{accepted} (drafter suffix), seed " in figures


def test_several_samples_are_numbered_and_all_in_the_json(run: Run, loaded: Loaded) -> None:
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=20, n=3)
    expected = made(loaded, chat(PROMPT), params)
    texts = [sample.text for sample in expected.samples]
    tokens = sum(len(sample.token_ids) for sample in expected.samples)
    output, figures = run(PROMPT, *SAMPLED, "--n", "3")[:2]
    assert output == f"[1] {texts[0]}\n\n[2] {texts[1]}\n\n[3] {texts[2]}\n"
    assert figures.startswith(f"{tokens} tokens, ")
    printed = json.loads(run(PROMPT, *SAMPLED, "--n", "3", "--json")[0])
    assert [sample["text"] for sample in printed["samples"]] == texts
    assert printed["text"] == texts[0]
    assert printed["usage"]["completion_tokens"] == tokens


def test_streamed_text_is_the_same(run: Run) -> None:
    assert run(PROMPT, *SAMPLED, "--stream")[0] == run(PROMPT, *SAMPLED)[0]


def test_streamed_json_is_one_event_a_line(run: Run) -> None:
    lines = run(PROMPT, *SAMPLED, "--stream", "--json")[0].splitlines()
    *tokens, done = [json.loads(line) for line in lines]
    assert len(tokens) >= 2
    assert all(set(event) == {"type", "text"} and event["type"] == "token" for event in tokens)
    assert done.pop("type") == "done"
    assert "".join(event["text"] for event in tokens) == done["text"]
    whole = json.loads(run(PROMPT, *SAMPLED, "--json")[0])
    del done["timings"], whole["timings"]
    assert done == whole


@pytest.mark.parametrize(
    ("words", "prompt"),
    [
        ([PROMPT], chat(PROMPT)),
        ([PROMPT, "--system", "be brief"], chat(PROMPT, "be brief")),
        ([PROMPT, "--raw"], PROMPT),
        (["-", "--raw"], PROMPT),
    ],
)
def test_the_prompt_is_a_chat_unless_it_is_raw(
    words: list[str], prompt: Any, run: Run, loaded: Loaded
) -> None:
    printed = json.loads(run(*words, "--max-tokens", "8", "--json", stdin=f"{PROMPT}\n")[0])
    assert printed["usage"]["prompt_tokens"] == len(loaded.generator.prompt_ids(prompt))
    assert printed["text"] == made(loaded, prompt, SamplingParams(max_tokens=8)).text


def test_the_parts_and_the_speculation_are_passed_on(run: Run, loaded: Loaded) -> None:
    words = ["--model", "m", "--drafter", "none", "--dtype", "float32"]
    words += ["--branching", "2", "--policy", "fixed", "--verification", "rejection", "--strict"]
    run(PROMPT, *words, "--num-speculative-tokens", "3", "--max-tokens", "2")
    run(PROMPT, "--max-tokens", "2")
    assert loaded.calls == [
        (
            *("m", "none", "float32"),
            SpeculationConfig(
                3, branching=2, policy="fixed", verification="rejection", strict=True
            ),
        ),
        ("smollm2-135m-instruct", "suffix", "auto", SpeculationConfig()),
    ]


def test_every_sampling_option_is_passed_on(
    run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[SamplingParams] = []
    request = loaded.generator.request

    def recording(prompt: Any, params: SamplingParams) -> Any:
        taken.append(params)
        return request(prompt, params)

    monkeypatch.setattr(loaded.generator, "request", recording)
    words = ["--temperature", "0.5", "--top-p", "0.9", "--top-k", "7", "--min-p", "0.1"]
    words += ["--repetition-penalty", "1.2", "--seed", "4", "--max-tokens", "3"]
    words += ["--presence-penalty", "0.3", "--frequency-penalty", "-0.2", "--min-tokens", "2"]
    words += ["--logit-bias", "7=-1.5", "--logit-bias", "9=2", "--top-logprobs", "3"]
    run(PROMPT, *words, "--stop", "x", "--stop", "yz")
    run(PROMPT, "--max-tokens", "3")
    assert taken == [
        SamplingParams(
            *(0.5, 0.9, 7, 0.1, 1.2, 3, ("x", "yz")),
            seed=4,
            presence_penalty=0.3,
            frequency_penalty=-0.2,
            min_tokens=2,
            logit_bias={7: -1.5, 9: 2.0},
            top_logprobs=3,
        ),
        SamplingParams(max_tokens=3),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--raw", "--system", "be brief"], "--system needs the chat format"),
        (["--temperature", "-0.1"], "temperature must be 0 (greedy) or more"),
        (["--top-p", "0"], "top_p must be above 0"),
        (["--max-tokens", "0"], "max_tokens must be 1 or more"),
        (["--stop", ""], "stop must be texts that are not empty"),
        (["--min-tokens", "9", "--max-tokens", "8"], "min_tokens must be from 0 to max_tokens"),
        (["--logit-bias", "x=1"], "--logit-bias needs a token id and a number, got 'x=1'"),
        (["--n", "0"], "n must be 1 or more"),
        (["--n", "2", "--stream"], "--stream shows one sample, got --n 2"),
        (["--policy", "godput"], "unknown policy 'godput'; did you mean 'goodput'?"),
        (["--verification", "x"], "unknown verification 'x'; allowed: match, rejection"),
        (["--num-speculative-tokens", "-1"], "num_speculative_tokens must be at least 0"),
    ],
)
def test_what_cannot_be_used_is_refused_before_loading(
    words: list[str], message: str, loaded: Loaded
) -> None:
    args = ["generate", PROMPT, *words]
    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(build_app(args), args, catch_exceptions=False)
    assert message in refused.value.message
    assert loaded.calls == []


@pytest.mark.parametrize("kind", [SamplingParams, SpeculationConfig])
def test_defaults_are_those_of_the_library(kind: type[Any]) -> None:
    options = inspect.signature(generate).parameters
    shared = [field for field in dataclasses.fields(kind) if field.name in options]
    assert len(shared) >= 1
    for field in shared:
        assert (options[field.name].default or None) == (field.default or None), field.name


def test_the_default_parts_are_those_of_the_library() -> None:
    options = inspect.signature(generate).parameters
    library = inspect.signature(SpeculativeGenerator.from_pretrained).parameters
    assert options["model"].default == library["target"].default
    assert options["drafter"].default == library["drafter"].default
    assert options["dtype"].default == library["dtype"].default


@pytest.mark.embedded
def test_the_embedded_model_answers(embedded_target_path: Path) -> None:
    assert embedded_target_path.is_dir()
    words = ["generate", "Say hello.", "--max-tokens", "4", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "specrag", *words], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["model"] == "smollm2-135m-instruct"
    assert len(printed["token_ids"]) == len(printed["logprobs"]) <= 4
    assert printed["text"].strip()
