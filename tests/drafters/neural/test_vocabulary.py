from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from transformers import PreTrainedTokenizerFast

from specrag.decoding.budget import DraftBudget
from specrag.decoding.tree import DraftTree
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.drafters.neural.session import DraftOptions
from specrag.drafters.neural.transcript import Transcript, Translator
from specrag.drafters.neural.vocabulary import SharedVocabulary, special_texts, token_bytes
from specrag.errors import ConfigError
from specrag.models.tiny import tiny_tokenizer
from specrag.models.tokenizer import Tokenizer
from tests.drafters.kit import (
    MODES,
    TOKENIZER,
    VOCAB,
    context,
    decode,
    grid,
    merging_model,
    merging_tokenizer,
    model,
    params,
    target,
)


def shared() -> SharedVocabulary:
    return SharedVocabulary(target(), TOKENIZER, merging_model(), merging_tokenizer())


def other_drafter() -> DraftModelDrafter:
    options = DraftOptions(min_confidence=0.0)
    made = DraftModelDrafter(merging_model(), merging_tokenizer(), options=options)
    made.bind(target(), TOKENIZER)
    return made


# The same tokens.


def test_the_same_tokens_are_not_translated() -> None:
    vocabulary = SharedVocabulary(target(), TOKENIZER, model(2), tiny_tokenizer(VOCAB))
    logits = torch.randn(3, VOCAB)

    assert vocabulary.is_identity
    assert vocabulary.target_logits(logits) is logits
    assert vocabulary.draft_ids([5, 9]) == [5, 9]


@pytest.mark.parametrize("width", [VOCAB - 6, VOCAB + 6])
def test_numbers_at_the_end_are_no_difference(width: int) -> None:
    padded = model(2, vocab=width)
    vocabulary = SharedVocabulary(target(), TOKENIZER, padded, tiny_tokenizer(width))
    logits = torch.randn(2, width)
    found = vocabulary.target_logits(logits)
    common = min(width, VOCAB)

    assert vocabulary.is_identity
    assert found.shape == (2, VOCAB)
    assert found[:, :common].equal(logits[:, :common])
    assert bool((found[:, common:] == -torch.inf).all())
    assert vocabulary.draft_ids([5, VOCAB - 1]) == [5, VOCAB - 1 if width > VOCAB else 0]
    assert vocabulary.has(5)
    assert vocabulary.has(VOCAB - 1) == (width > VOCAB)


@pytest.mark.parametrize(
    ("width", "branching"),
    grid([VOCAB - 6, VOCAB + 6], [1, 3], quick={(VOCAB - 6, 1), (VOCAB + 6, 3)}),
)
def test_a_draft_model_with_more_or_fewer_numbers_drafts(width: int, branching: int) -> None:
    made = DraftModelDrafter(model(vocab=width), tiny_tokenizer(width))
    wishes = [params("sampled", number, ignore_eos=True) for number in range(4)]
    found = decode(made, wishes, branching=branching)

    assert [a.token_ids for a in found] == [a.token_ids for a in decode("none", wishes)]
    assert sum(answer.stats.num_draft_tokens for answer in found) > 0


# Other tokens.


def test_tokens_with_the_same_text_are_matched() -> None:
    vocabulary, theirs = shared(), merging_tokenizer()
    assert not vocabulary.is_identity
    for text in "a", "Z", "7", "?", " ":
        (ours,) = TOKENIZER.encode(text)
        (token,) = vocabulary.draft_ids([ours])
        assert theirs.decode([token]) == text
    assert len(set(vocabulary.to_draft.values())) == len(vocabulary.to_draft)


def test_marks_are_matched_by_their_role_or_name_only() -> None:
    vocabulary, theirs = shared(), merging_tokenizer().backend
    names = {name: token for token, name in special_texts(TOKENIZER).items()}

    assert vocabulary.draft_ids([names["<eos>"]]) == [theirs.eos_token_id]
    assert vocabulary.draft_ids([names["<s>"]]) == [theirs.convert_tokens_to_ids("<s>")]
    assert not vocabulary.has(names["<u>"])


def test_logits_of_tokens_that_only_one_side_has_are_excluded() -> None:
    vocabulary = shared()
    logits = torch.randn(2, merging_model().vocab_size)
    found = vocabulary.target_logits(logits)

    assert found.shape == (2, VOCAB)
    for token in range(VOCAB):
        expected = logits[:, vocabulary.to_draft[token]] if vocabulary.has(token) else -torch.inf
        assert bool((found[:, token] == expected).all())


def test_a_tree_is_pruned_to_what_the_draft_model_can_read() -> None:
    (good,) = TOKENIZER.encode("a")
    bad = next(token for token in range(VOCAB) if not shared().has(token))
    tree = DraftTree((good, bad, good, good), (-1, -1, 1, 0), (0.5, 0.4, 0.3, 0.2))

    assert shared().pruned(tree) == DraftTree((good, good), (-1, 0))
    assert shared().pruned(DraftTree.chain([good])) == DraftTree.chain([good])


@pytest.mark.parametrize(
    ("branching", "mode"),
    grid([1, 3], MODES, quick={(1, "greedy"), (1, "truncated"), (3, "sampled")}),
)
def test_every_answer_is_that_of_plain_decoding(branching: int, mode: str) -> None:
    wishes = [params(mode, number, ignore_eos=number % 2 == 0) for number in range(4)]
    found = decode(other_drafter(), wishes, branching=branching)

    assert [a.token_ids for a in found] == [a.token_ids for a in decode("none", wishes)]
    assert sum(answer.stats.num_draft_tokens for answer in found) > 10


def test_a_draft_continues_the_text_in_the_draft_models_own_tokens() -> None:
    """The oracle encodes the whole text at once, and reads the model without any cache."""
    text = "the sea is deep and the mo"
    (chain,) = (
        other_drafter().open([context(TOKENIZER.encode(text))]).propose([0], [DraftBudget(3, 3, 1)])
    )
    ids = torch.tensor([merging_tokenizer().encode(text)])
    with torch.inference_mode():
        logits = shared().target_logits(merging_model().model(ids).logits[0, -1])

    assert chain.token_ids[0] == int(logits.argmax())
    assert chain.confidences[0] == pytest.approx(float(logits.softmax(-1).max()), rel=1e-5)


def test_the_law_of_a_drawn_token_is_one_over_the_targets_vocabulary() -> None:
    rows = [context((9, 5, 7), "sampled", seed, rejection=True) for seed in range(5)]
    trees = other_drafter().open(rows).propose(range(5), [DraftBudget(3, 3, 1)] * 5)
    strange = [token for token in range(VOCAB) if not shared().has(token)]
    for tree in trees:
        assert tree.draft_probs is not None
        assert tree.draft_probs.shape == (3, VOCAB)
        assert tree.draft_probs.sum(-1).tolist() == pytest.approx([1.0] * 3)
        assert float(tree.draft_probs[:, strange].sum()) == 0.0


def test_a_session_keeps_in_step_with_the_text_it_encodes_anew() -> None:
    made, rng = other_drafter(), random.Random(3)
    session, text = made.open([context((9,), "sampled")]), [9]
    for _ in range(25):
        more = TOKENIZER.encode(rng.choice([" the", " sea", "s", " d", "eep", "?", " "]))
        session.observe(0, more)
        text += more
        budget = DraftBudget(4, 4, rng.choice([1, 3]))
        (found,) = session.propose([0], [budget])
        (expected,) = made.open([context(text, "sampled")]).propose([0], [budget])
        session.cache.lengths()
        assert found == expected
        assert found.confidences == pytest.approx(expected.confidences, abs=1e-9)


# What is refused.


def foreign_tokenizer() -> Tokenizer:
    words = {"<unk>": 0, **{chr(0x3B1 + i): i + 1 for i in range(20)}}
    backend = RustTokenizer(WordLevel(words, unk_token="<unk>"))
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"))


def test_too_little_in_common_is_refused_with_the_share() -> None:
    made = DraftModelDrafter(model(2, vocab=21), foreign_tokenizer())
    with pytest.raises(ConfigError) as caught:
        made.bind(target(), TOKENIZER)

    assert "draft model 'tiny-2'" in str(caught.value)
    assert "target 'tiny-1': 0% of the smaller vocabulary, at least 60%" in str(caught.value)


def test_a_vocabulary_without_the_tokens_of_real_text_is_refused() -> None:
    """Most tokens are shared, but they are not those that are used."""
    words = {chr(0x4E00 + i): i for i in range(200)}
    rare = {**words, **{letter: 200 + i for i, letter in enumerate("abc")}}
    common = {**words, **{letter: 200 + i for i, letter in enumerate("xyz defghi")}}

    def tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
        backend = RustTokenizer(WordLevel(vocabulary, unk_token="e" if "e" in vocabulary else "a"))
        backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))

    with pytest.raises(ConfigError, match="of the tokens of a sample text"):
        SharedVocabulary(model(vocab=210), tokenizer(common), model(2, vocab=203), tokenizer(rare))


# The bytes of tokens, and texts made of them.


def piece_tokenizer() -> Tokenizer:
    """SentencePiece's way: a mark for spaces, byte tokens, a space put before every text."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefgh", "▁a", "▁ab"]
    merges = [("▁", "a"), ("▁a", "b")]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = RustTokenizer(BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"))


def test_the_bytes_of_each_kind_of_token() -> None:
    pieces = piece_tokenizer()
    by_name = pieces.backend.get_vocab()
    found = token_bytes(pieces)
    assert found[by_name["<0x0A>"]] == b"\n"
    assert found[by_name["▁ab"]] == b" ab"
    assert by_name["<unk>"] not in found

    letters = merging_tokenizer()
    read = token_bytes(letters)
    for text in ("the sea", "é", "\n\t x", "\x00ÿ"):
        assert b"".join(read[token] for token in letters.encode(text)) == text.encode()
    assert token_bytes(TOKENIZER)[TOKENIZER.encode("q")[0]] == b"q"


def spelled(text: str) -> list[int]:
    """The bytes of a text as byte-level tokens, one each: characters are split at every border."""
    letters = {data: token for token, data in token_bytes(merging_tokenizer()).items()}
    return [letters[bytes([byte])] for byte in text.encode()]


def transcript_to(theirs: Tokenizer, token_ids: Sequence[int]) -> Transcript:
    """A byte-level target's text for a drafter with other tokens."""
    vocabulary = SharedVocabulary.__new__(SharedVocabulary)
    vocabulary.is_identity, vocabulary.to_draft = False, {}
    transcript = Transcript(Translator(vocabulary, merging_tokenizer(), theirs), vocabulary)
    for token in token_ids:
        transcript.append(token)
    return transcript


texts = st.text(st.sampled_from("ab \n\tdé€𝄞"), max_size=60)


@given(text=texts)
@settings(deadline=None, max_examples=60)
def test_a_text_is_the_same_in_the_draft_models_tokens(text: str) -> None:
    theirs = piece_tokenizer()
    found = transcript_to(theirs, spelled(text)).draft_ids()
    read = token_bytes(theirs)

    assert found is not None
    said = b"".join(read.get(token, b"?") for token in found).decode()
    # A tokenizer that puts a space before every text does so once, at the very beginning.
    assert said.removeprefix(" " if text[:1] not in (" ", "") else "") == text


@given(text=texts, cut=st.integers(0, 60))
@settings(deadline=None, max_examples=50)
def test_tokens_ahead_count_as_committed_ones_and_change_nothing(text: str, cut: int) -> None:
    tokens = spelled(text)
    transcript = transcript_to(piece_tokenizer(), tokens[:cut])
    before = transcript.draft_ids()
    expected = transcript_to(piece_tokenizer(), tokens)

    assert transcript.after(tokens[cut:]).draft_ids() == expected.draft_ids()
    assert transcript.draft_ids() == before


def test_half_a_character_cannot_be_continued() -> None:
    tokens = spelled("a €")
    found = [transcript_to(piece_tokenizer(), tokens[:n]).draft_ids() for n in range(1, 6)]

    assert [ids is None for ids in found] == [False, False, True, True, False]


def test_words_that_ended_are_not_encoded_again() -> None:
    theirs = piece_tokenizer()
    encoded: list[str] = []

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return Tokenizer.encode(theirs, text)

    theirs.encode = encode  # type: ignore[method-assign]
    transcript = transcript_to(theirs, spelled("ab " * 40 + "d" * 100))
    encoded.clear()
    for token in spelled(" ab"):
        transcript.append(token)
        transcript.draft_ids()

    assert encoded
    assert all(len(text) <= 33 for text in encoded)


def test_a_mark_without_a_partner_is_read_as_its_letters() -> None:
    (user,) = [token for token, name in special_texts(TOKENIZER).items() if name == "<u>"]
    translator = Translator(shared(), TOKENIZER, merging_tokenizer())
    transcript = Transcript(translator, shared())
    for token in [*TOKENIZER.encode("the"), user, *TOKENIZER.encode("sea")]:
        transcript.append(token)

    found = transcript.draft_ids()
    assert found is not None
    assert merging_tokenizer().decode(found) == "the<u>sea"
