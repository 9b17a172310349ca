from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.tree import DraftTree
from specrag.drafters import composite
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.drafters.scripted import Scripted

CONTEXT = DraftContext((1, 2))
WIDE = DraftBudget(9, 4, 4)
COSTS = PassCosts((1, 8), (1.0, 1.5))

WORDY = DraftTree.chain([5, 6], [0.9, 0.8])
TERSE = DraftTree.chain([7], [0.6])


def one_row(*members: Drafter) -> DraftSession:
    return CompositeDrafter(members).open([CONTEXT])


def proposal(session: DraftSession, budget: DraftBudget = WIDE, row: int = 0) -> DraftTree:
    return session.propose([row], [budget])[0]


def test_the_trees_of_all_members_are_proposed_with_their_names() -> None:
    tree = proposal(one_row(Scripted("a", WORDY), Scripted("b", DraftTree.chain([5], [0.95]))))

    assert (tree.token_ids, tree.parents) == ((5, 6), (-1, 0))
    assert tree.confidences == (0.95, 0.8)
    assert tree.origins == (("a", "b"), ("a",))


def test_members_share_the_one_budget() -> None:
    session = one_row(Scripted("a", WORDY), Scripted("b", TERSE))

    assert proposal(session, DraftBudget(2, 4, 4)) == WORDY
    assert proposal(session, DraftBudget(9, 1, 4)) == DraftTree((5, 7), (-1, -1))
    assert proposal(session, DraftBudget(9, 4, 1)) == WORDY
    assert proposal(session, DraftBudget(0, 4, 4)) == DraftTree()


def test_a_member_that_promises_too_much_loses_its_place() -> None:
    session = one_row(Scripted("boastful", WORDY), Scripted("honest", TERSE))
    only_one = DraftBudget(1, 1)
    assert proposal(session, only_one).token_ids == (5,)

    for _ in range(4):
        proposal(session)
        session.observe(0, [7])

    assert proposal(session, only_one).token_ids == (7,)


def test_trust_is_of_its_row_and_comes_back() -> None:
    members = Scripted("a", WORDY), Scripted("b", TERSE)
    session = CompositeDrafter(members).open([CONTEXT, CONTEXT])
    only_one = DraftBudget(1, 1)
    for _ in range(4):
        proposal(session)
        session.observe(0, [7])
    assert proposal(session, only_one, row=1).token_ids == (5,)

    for _ in range(40):
        proposal(session)
        session.observe(0, [5, 6, 9])
    assert proposal(session, only_one).token_ids == (5,)


def test_a_member_that_promises_too_little_is_left_at_its_word() -> None:
    session = one_row(Scripted("modest", DraftTree.chain([5], [0.3])))
    for _ in range(9):
        proposal(session)
        session.observe(0, [5, 8])

    assert proposal(session).confidences == (0.3,)


@pytest.mark.parametrize(
    ("emitted", "weight"),
    [
        ([5, 6, 9], 1.0),  # all came true
        ([5], 1.0),  # so did the first, and the answer ended before the second
        ([5, 9], (4 + 1) / (4 + 0.9 + 0.8 / 0.9)),  # only the first came true
        ([9], 4 / (4 + 0.9)),  # nothing did, and the second was not put to the test
    ],
)
def test_a_node_counts_when_its_parent_came_true(emitted: Sequence[int], weight: float) -> None:
    session = one_row(Scripted("a", WORDY))
    proposal(session)
    session.observe(0, emitted)

    assert proposal(session).confidences == pytest.approx((0.9 * weight, 0.8 * weight**2))


def test_tokens_that_no_proposal_stood_against_teach_nothing() -> None:
    session = one_row(Scripted("a", WORDY))
    session.observe(0, [7, 7])
    proposal(session)
    session.observe(0, [5, 6])
    session.observe(0, [7, 7])
    session.propose_after([0], [WIDE], [[3]])
    session.observe(0, [3])

    assert proposal(session).confidences == (0.9, 0.8)


def test_looking_ahead_asks_every_member() -> None:
    knows = Scripted("knows", by_last={8: DraftTree.chain([9], [0.7])})
    session = one_row(Scripted("a", TERSE), knows)
    (tree,) = session.propose_after([0], [WIDE], [[8]])

    assert (tree.token_ids, tree.origins) == ((9, 7), (("knows",), ("a",)))
    assert proposal(session) == TERSE


def test_committed_tokens_and_their_features_reach_every_member() -> None:
    members = Scripted("a"), Scripted("b")
    session = CompositeDrafter(members).open([CONTEXT, CONTEXT])
    states = {1: torch.ones(2, 3)}
    session.observe(1, [3, 4], states)
    session.observe(0, [5])

    assert [member.sessions[0].observed for member in members] == [[[5], [3, 4]]] * 2
    for member in members:
        assert member.sessions[0].features[0] is states
        assert member.sessions[0].features[1] is None


def test_a_row_that_one_member_refuses_leaves_the_others_in_step() -> None:
    first, second = Scripted("first", by_last={6: TERSE}), Scripted("second", grows=False)
    session = CompositeDrafter([first, second]).open([CONTEXT])
    with pytest.raises(ConfigError, match="second cannot grow"):
        session.join(CONTEXT)
    second.grows = True

    assert session.join(CONTEXT) == 1
    session.observe(1, [6])
    assert proposal(session, row=1) == TERSE
    assert second.sessions[0].observed == [[], [6]]


def test_binding_reaches_every_member_and_their_layers_are_united() -> None:
    members = Scripted("a", layers=(3, 1)), Scripted("b", layers=(1, 5))
    drafter = CompositeDrafter(members)
    assert not drafter.feature_layers
    drafter.bind(tiny_target(), tiny_tokenizer(), COSTS)

    assert [member.bound_to for member in members] == [[COSTS], [COSTS]]
    assert drafter.feature_layers == (3, 1, 5)


def test_what_was_opened_is_closed_when_a_member_cannot_open() -> None:
    opened = Scripted("a")
    with pytest.raises(ConfigError, match="b cannot open"):
        CompositeDrafter([opened, Scripted("b", fails_at="open")]).open([CONTEXT])

    assert opened.sessions[0].closed == 1


def test_all_members_are_closed_though_one_of_them_fails_to() -> None:
    members = [Scripted("a"), Scripted("b", fails_at="close"), Scripted("c")]
    session = CompositeDrafter(members).open([CONTEXT])
    with pytest.raises(RuntimeError, match="b cannot close"):
        session.close()

    assert [member.sessions[0].closed for member in members] == [1, 1, 1]


def test_combinations_can_be_combined() -> None:
    inner = CompositeDrafter([Scripted("a", WORDY), Scripted("b", WORDY)])
    drafter = CompositeDrafter([inner, Scripted("c", TERSE)])
    tree = proposal(drafter.open([CONTEXT]))

    assert drafter.name == "a+b+c"
    assert tree.origins == (("a", "b"), ("a", "b"), ("c",))


def test_one_copying_drafter_agrees_with_another() -> None:
    context = DraftContext((1, 2, 3, 4, 1, 2, 3, 4, 1, 2))
    session = CompositeDrafter([SuffixDrafter(), PromptLookupDrafter()]).open([context])
    tree = proposal(session, DraftBudget(3, 3))

    assert tree == DraftTree.chain([3, 4, 1])
    assert set(tree.origins) == {("suffix", "prompt_lookup")}


def test_no_member_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least one"):
        CompositeDrafter([])


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'a' is named 2 times in 'a\+b\+a'"):
        CompositeDrafter([Scripted("a"), Scripted("b"), Scripted("a")])


class Level:
    """A level of a draft that takes no time worth measuring."""

    identity = ("level", "of a test")

    def prepare(self) -> Callable[[], object]:
        return lambda: None


def bound_beside(costly: Scripted, free: Scripted, monkeypatch: pytest.MonkeyPatch) -> Drafter:
    costly.levels = (Level(),)
    monkeypatch.setattr(composite, "known_draft_level", lambda _target, _level: 0.2)
    drafter = CompositeDrafter([costly, free])
    drafter.bind(tiny_target(), tiny_tokenizer(), COSTS)
    return drafter


def test_a_costly_member_is_asked_where_the_free_ones_are_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sure, doubt = DraftTree.chain([5, 6], [0.98, 0.97]), DraftTree.chain([5], [0.1])
    costly = Scripted("costly", TERSE)
    free = Scripted("free", doubt, by_last={8: sure})
    drafter = bound_beside(costly, free, monkeypatch)
    assert drafter.levels == ()
    session = drafter.open([CONTEXT, CONTEXT])
    session.observe(0, [8])
    session.observe(1, [9])
    trees = session.propose([0, 1], [WIDE, WIDE])
    assert (free.sessions[0].asked, costly.sessions[0].asked) == ([[0, 1]], [[1]])
    assert (trees[0].token_ids, trees[1].token_ids) == ((5, 6), (7, 5))
    # Drafted ahead, only what would be asked then is asked.
    after = session.propose_after([0, 1], [WIDE, WIDE], [[9], [8]])
    assert [tree.token_ids for tree in after] == [(7, 5), (5, 6)]


def test_a_costly_member_that_is_never_right_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costly, free = Scripted("costly", TERSE), Scripted("free", DraftTree.chain([5], [0.1]))
    session = bound_beside(costly, free, monkeypatch).open([CONTEXT])
    for _ in range(40):
        session.propose([0], [WIDE])
        session.observe(0, [11])
    assert 2 < len(costly.sessions[0].asked) < 30
    assert len(free.sessions[0].asked) == 40
    assert costly.sessions[0].observed == [[11] * 40]  # it follows the text all the same


def test_all_members_are_asked_where_no_costs_are_known_or_none_is_free() -> None:
    costly, other = Scripted("costly", TERSE), Scripted("other", WORDY)
    costly.levels = other.levels = (Level(),)
    both = CompositeDrafter([costly, other])
    both.bind(tiny_target(), tiny_tokenizer(), COSTS)
    assert len(both.levels) == 2
    other.levels = ()
    uncounted = CompositeDrafter([costly, other])
    uncounted.bind(tiny_target(), tiny_tokenizer(), None)
    assert len(uncounted.levels) == 1
    session = uncounted.open([CONTEXT])
    for _ in range(30):
        session.propose([0], [WIDE])
        session.observe(0, [11])
    assert len(costly.sessions[-1].asked) == 30
