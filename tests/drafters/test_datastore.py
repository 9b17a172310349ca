from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, DraftSession
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.tree import DraftTree
from specrag.drafters.catalog import make_drafter
from specrag.drafters.datastore import DatastoreDrafter
from specrag.drafters.stores.arrays import DatastoreArrays
from specrag.drafters.stores.file import MANIFEST_NAME, datastores_dir, write_datastore
from specrag.drafters.stores.manifest import DatastoreManifest, DatastoreOrigin
from specrag.drafters.stores.token_datastore import TokenDatastore
from specrag.errors import ConfigError, IndexFormatError
from specrag.models.tiny import tiny_target, tiny_tokenizer

Tokens = tuple[int, ...]
texts = st.lists(st.integers(0, 2), max_size=16).map(tuple)
corpora = st.lists(texts, max_size=3).filter(lambda found: any(len(text) > 1 for text in found))
WIDE = DraftBudget(9, 5, 3)


def write(
    folder: Path, corpus: Sequence[Tokens], tokenizer: str = "", vocab_size: int = 64
) -> Path:
    origin = DatastoreOrigin("manuals", "v1", tokenizer, "toy", vocab_size)
    write_datastore(folder, DatastoreArrays.build(corpus, vocab_size), origin)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A datastore that stands for those that are never written to disk, which takes longer."""
    return write(tmp_path_factory.mktemp("datastore"), [(0, 0)])


def over(
    place: Path, corpus: Sequence[Tokens], least: float = 0.0, escape: float = 2.0
) -> DatastoreDrafter:
    drafter = DatastoreDrafter(place, 2, 4, min_probability=least, escape=escape)
    drafter._opened = place, TokenDatastore(DatastoreArrays.build(corpus, 64), 64)
    return drafter


def after(drafter: DatastoreDrafter, text: Tokens) -> DraftSession:
    """Splits a text between prompt and output."""
    cut = len(text) // 2
    session = drafter.open([DraftContext(text[:cut], passages=((0, 1, 2),))])
    session.observe(0, text[cut:])
    return session


def propose(drafter: DatastoreDrafter, text: Tokens, budget: DraftBudget = WIDE) -> DraftTree:
    (tree,) = after(drafter, text).propose([0], [budget])
    return tree


def paths(tree: DraftTree) -> list[Tokens]:
    return [tuple(tree.token_ids[step] for step in tree.path_to(node)) for node in range(len(tree))]


def continuations(corpus: Sequence[Tokens], ending: Tokens) -> list[Tokens]:
    """What follows each occurrence of an ending, at least one token, by brute force."""
    size = len(ending)
    return [
        text[start + size :]
        for text in corpus
        for start in range(len(text) - size)
        if text[start : start + size] == ending
    ]


def grown(
    corpus: Sequence[Tokens], text: Tokens, budget: DraftBudget, least: float, escape: float
) -> Iterator[tuple[float, Tokens]]:
    """Yields every path within depth, branching and probability, as the docstring defines them."""
    endings = [text[-size:] for size in range(min(4, len(text)), 1, -1)]
    ending = next((ending for ending in endings if continuations(corpus, ending)), ())
    waiting: list[tuple[float, Tokens]] = [(1.0, ())] if ending else []
    while waiting:
        probability, path = waiting.pop()
        rows = continuations(corpus, (*ending, *path))
        if len(path) == budget.max_depth or not rows:
            continue
        counts = Counter(row[0] for row in rows)
        for token in sorted(counts, key=lambda token: (-counts[token], token))[: budget.branching]:
            share = counts[token] / (len(rows) + escape / (len(ending) + len(path)))
            if probability * share >= least:
                waiting.append((probability * share, (*path, token)))
                yield probability * share, (*path, token)


@given(
    data=st.data(),
    corpus=corpora,
    nodes=st.integers(0, 10),
    depth=st.integers(0, 4),
    branching=st.integers(1, 3),
    least=st.sampled_from([0.0, 0.05, 0.3]),
    escape=st.sampled_from([0.0, 0.5, 2.0]),
)
@settings(max_examples=100, deadline=None)
def test_a_tree_holds_the_likeliest_paths_best_first(
    place: Path,
    data: st.DataObject,
    corpus: list[Tokens],
    nodes: int,
    depth: int,
    branching: int,
    least: float,
    escape: float,
) -> None:
    source = data.draw(st.sampled_from(corpus))
    text = (*data.draw(texts), *source[: data.draw(st.integers(0, len(source)))])
    budget = DraftBudget(nodes, depth, branching)
    probability = {path: value for value, path in grown(corpus, text, budget, least, escape)}
    tree = propose(over(place, corpus, least, escape), text, budget)

    found = [probability[path] for path in paths(tree)]
    assert found == pytest.approx(heapq.nlargest(nodes, probability.values()))
    assert list(tree.confidences) == pytest.approx(found)


@given(corpus=corpora, text=texts, ahead=texts)
@settings(max_examples=50, deadline=None)
def test_tokens_ahead_count_as_if_they_had_been_committed(
    place: Path, corpus: list[Tokens], text: Tokens, ahead: Tokens
) -> None:
    drafter = over(place, corpus)
    session, later = after(drafter, text), after(drafter, text)
    later.observe(0, ahead)

    assert session.propose_after([0], [WIDE], [ahead]) == later.propose([0], [WIDE])
    assert session.propose([0], [WIDE]) == [propose(drafter, text)]


def test_each_drafted_token_lengthens_the_match(tmp_path: Path) -> None:
    tree = propose(DatastoreDrafter(write(tmp_path, [(1, 2, 3, 4, 5)])), (1, 2))

    assert tree.token_ids == (3, 4, 5)
    shares = (2 / 4, 3 / 5, 4 / 6)  # one occurrence against an escape of 2 / L
    assert tree.confidences == pytest.approx((shares[0], shares[0] * shares[1], 0.2))


def test_of_equal_probabilities_the_shallower_comes_first(tmp_path: Path) -> None:
    # Without an escape the certain 9 is as likely as the 8 before it, and that as the 7.
    write(tmp_path, [(1, 2, 8, 9), (1, 2, 7, 9)])
    tree = propose(DatastoreDrafter(tmp_path, escape=0.0), (1, 2), DraftBudget(3, 3, 2))

    assert paths(tree) == [(7,), (8,), (7, 9)]


def test_of_many_occurrences_the_sampled_ones_stand_for_all(tmp_path: Path) -> None:
    write(tmp_path, [(5, 1, 2, 7)] * 300 + [(6, 1, 2, 8)] * 100)
    tree = propose(DatastoreDrafter(tmp_path, num_samples=8), (1, 2), DraftBudget(2, 1, 2))

    assert tree.token_ids == (7, 8)
    assert tree.confidences == pytest.approx((300 / 401, 100 / 401))


def test_the_longest_match_within_bounds_decides(tmp_path: Path) -> None:
    write(tmp_path, [(1, 2, 3, 4), (9, 3, 5), (8, 2, 3, 6), (7, 2, 3, 6)])

    def first(min_match: int, max_match: int, text: Tokens = (1, 2, 3)) -> Tokens:
        drafter = DatastoreDrafter(tmp_path, min_match, max_match)
        return propose(drafter, text, DraftBudget(1, 1)).token_ids

    assert first(1, 16) == first(3, 16) == (4,)
    assert first(1, 2) == first(2, 2) == (6,)
    assert first(3, 16, (2, 3)) == first(4, 16) == ()
    assert first(1, 16, (0, 3)) == (6,)
    assert first(2, 16, (0, 3)) == ()


def test_a_row_that_joins_is_drafted_for(tmp_path: Path) -> None:
    session = DatastoreDrafter(write(tmp_path, [(1, 2, 3, 4)])).open([])

    assert session.join(DraftContext((9,))) == 0
    assert session.join(DraftContext((1, 2))) == 1
    assert session.propose([1, 0], [DraftBudget(2, 2)] * 2) == [
        DraftTree.chain([3, 4]),
        DraftTree(),
    ]


def bound(path: Path, vocab_size: int = 64) -> DatastoreDrafter:
    drafter = DatastoreDrafter(path)
    target = tiny_target(vocab_size=vocab_size)
    drafter.bind(target, tiny_tokenizer(vocab_size))
    drafter.bind(target, tiny_tokenizer(vocab_size))
    return drafter


def test_the_datastore_of_the_targets_tokenizer_is_chosen(tmp_path: Path) -> None:
    for size in (64, 65):
        fingerprint = tiny_tokenizer(size).vocabulary_fingerprint
        write(tmp_path / fingerprint, [(1, 2, size - 60)], fingerprint, size)

    for size in (64, 65):
        assert propose(bound(tmp_path, size), (1, 2)).token_ids == (size - 60,)


def test_unbound_the_newest_is_used(tmp_path: Path) -> None:
    for token in (4, 5, 3):  # neither names nor the order of writing decide
        path = write(tmp_path / str(token), [(1, 2, token)]) / MANIFEST_NAME
        manifest = DatastoreManifest.from_json(path.read_bytes())
        dated = replace(manifest, created_at=f"202{token}-01-01T00:00:00+00:00")
        path.write_bytes(dated.to_json())

    assert propose(DatastoreDrafter(tmp_path), (1, 2)).token_ids == (5,)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [(1, 2, 3)], "0123")
    with pytest.raises(
        ConfigError, match="'manuals' holds the tokens of toy; tiny-0 has"
    ) as caught:
        bound(tmp_path)
    assert caught.value.hint == (
        "build one for it: specrag index build manuals --datastore --model tiny-0"
    )


def test_a_target_with_fewer_tokens_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(65)
    write(tmp_path, [(1, 2, 64)], tokenizer.vocabulary_fingerprint, 65)

    with pytest.raises(ConfigError, match="another vocabulary .*, 64 tokens"):
        DatastoreDrafter(tmp_path).bind(tiny_target(vocab_size=64), tokenizer)
    DatastoreDrafter(tmp_path).bind(tiny_target(vocab_size=66), tokenizer)


def test_a_damaged_datastore_is_refused_when_it_is_needed(tmp_path: Path) -> None:
    fingerprint = tiny_tokenizer().vocabulary_fingerprint
    write(tmp_path, [(1, 2, 3)], fingerprint)
    next(tmp_path.glob("tokens-*")).write_bytes(b"")
    with pytest.raises(IndexFormatError, match="cannot map tokens-"):
        bound(tmp_path)


def test_a_damaged_datastore_of_another_tokenizer_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fingerprint = tiny_tokenizer().vocabulary_fingerprint
    write(tmp_path / fingerprint, [(1, 2, 3)], fingerprint)
    write(tmp_path / "a", [(1, 2, 3)])
    (tmp_path / "a" / MANIFEST_NAME).write_text("{")
    with caplog.at_level(logging.WARNING):
        assert propose(bound(tmp_path), (1, 2)).token_ids == (3,)
    assert "left out: the datastore in " in caplog.text

    (tmp_path / fingerprint / MANIFEST_NAME).write_text("{")
    with pytest.raises(IndexFormatError, match="not valid JSON"):
        DatastoreDrafter(tmp_path)


def test_a_user_names_an_index_or_a_folder(
    isolated_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(datastores_dir("manuals") / "abc", [(1, 2, 3)])
    write(tmp_path / "work/other", [(1, 2, 4)])
    write(tmp_path / "work/manuals", [(1, 2, 5)])  # the name of an index goes before
    monkeypatch.chdir(tmp_path / "work")

    named = {"manuals": 3, "other": 4, "./manuals": 5, str(tmp_path / "work/other"): 4}
    for argument, token in named.items():
        assert propose(DatastoreDrafter.named(argument), (1, 2)).token_ids == (token,)


def test_two_datastores_draft_together_and_for_kinds_of_text(isolated_home: Path) -> None:
    for name in ("manuals", "letters"):
        write(datastores_dir(name) / "abc", [(1, 2, 3)])
    both = "datastore:manuals+datastore:letters"
    assert make_drafter(both).name == both
    assert make_drafter("auto:code=datastore:manuals,text=datastore:letters").name == "selector"


@pytest.mark.parametrize("argument", ["manual", "", "..", ".", "no/such", "/"])
@pytest.mark.usefixtures("isolated_home")
def test_an_unknown_name_says_what_there_is_and_how_to_build_it(argument: str) -> None:
    write(datastores_dir("manuals") / "abc", [(1, 2, 3)])
    with pytest.raises(ConfigError, match=f"no datastore '{argument}'; .*manuals") as caught:
        DatastoreDrafter.named(argument)
    assert f"specrag index build {argument or 'NAME'} --datastore" in str(caught.value.hint)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="no datastore in .*nowhere"):
        DatastoreDrafter(tmp_path / "nowhere")


@pytest.mark.parametrize(("least", "most"), [(0, 4), (5, 4), (2, 33)])
def test_impossible_lengths_are_refused(tmp_path: Path, least: int, most: int) -> None:
    with pytest.raises(ConfigError, match=f"min_match={least} and max_match={most}"):
        DatastoreDrafter(tmp_path, least, most)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_floor_that_is_no_probability_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(ConfigError, match="min_probability must be between 0 and 1"):
        DatastoreDrafter(tmp_path, min_probability=value)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_an_impossible_escape_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(ConfigError, match="escape must be finite and not negative"):
        DatastoreDrafter(tmp_path, escape=value)


def test_no_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="num_samples must be at least 1, got 0"):
        DatastoreDrafter(tmp_path, num_samples=0)


def test_what_the_target_said_before_is_drafted_and_accepted(tmp_path: Path) -> None:
    target, tokenizer = tiny_target(3), tiny_tokenizer()
    prompt, params = [5, 9, 20, 30], SamplingParams(max_tokens=40)
    plain = SpeculativeGenerator(target, tokenizer, "none").generate_batch([prompt], params)[0]
    fingerprint = tokenizer.vocabulary_fingerprint
    drafter = DatastoreDrafter(write(tmp_path, [(*prompt, *plain.token_ids)], fingerprint))
    drafter.bind(target, tokenizer)
    drafted = SpeculativeGenerator(target, tokenizer, drafter).generate_batch([prompt], params)[0]

    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.mean_acceptance_length > 3
    assert plain.stats.mean_acceptance_length == 1
