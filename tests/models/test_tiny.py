"""The toy target and tokenizer: seeded, and with room for what other tests ask of them."""

from __future__ import annotations

import pytest
import torch

from specrag.models.tiny import tiny_target, tiny_tokenizer


def logits(seed: int, **options: float) -> torch.Tensor:
    target = tiny_target(seed, **options)  # type: ignore[arg-type]
    return target.prefill([[1, 2, 3]], target.new_cache(1)).logits[0, 0]


def test_a_seed_gives_one_model_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = logits(seed=3)

    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, logits(seed=3))
    assert not torch.equal(first, logits(seed=4))


def test_peakedness_scales_the_logits() -> None:
    torch.testing.assert_close(logits(0, peakedness=6.0), 3 * logits(0, peakedness=2.0))


def test_the_shape_is_what_was_asked_for() -> None:
    target = tiny_target(vocab_size=16, num_layers=3, max_context=20)

    assert target.vocab_size == 16
    assert target.num_layers == len(target.model.model.layers) == 3
    assert target.max_context == 20
    assert target.eos_token_ids == (0,)


@pytest.mark.parametrize("size", [4, 16, 64, 300])
def test_a_vocabulary_has_the_size_asked_for_and_no_token_twice(size: int) -> None:
    tokenizer = tiny_tokenizer(size)
    words = tokenizer.backend.convert_ids_to_tokens(list(range(size)))

    assert tokenizer.vocab_size == len(set(words)) == size
    assert tokenizer.eos_token_id == 0


def test_text_goes_there_and_back_letter_by_letter() -> None:
    tokenizer = tiny_tokenizer(80)
    text = "Hello, World: 42 (really)!"

    assert len(tokenizer.encode(text)) == len(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chats_use_the_three_role_marks() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode_chat(
        [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    )

    assert ids == [1, 5, 2, 6, 3]
