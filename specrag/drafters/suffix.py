"""Suffix drafting: the answer goes on as its longest repeated ending mostly did before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.automaton import ROOT_STATE, SuffixAutomaton
from specrag.drafters.rows import RowwiseSession
from specrag.errors import ConfigError


class SuffixDrafter(Drafter):
    """Copies what mostly followed earlier occurrences of the longest repeated ending of the text.

    Endings are looked up in the passages, the prompt and the output; the output continues the
    prompt, any other text is on its own. Passages that also stand in the prompt need not be given:
    they would count twice, which keeps the order of what follows but trusts it too much.

    After a match of L tokens, a token that followed c of its n continued occurrences is given the
    probability ``c / (n + escape / L)``, in the manner of PPM's escape: a long match or a frequent
    one is trusted, a single occurrence of a single token is not. The likeliest paths are drafted
    first, down to ``min_probability``, so that the draft's length follows from the evidence and
    needs no rule of its own.

    An automaton as in "SAM-Decoding" (Hu et al., 2024), paths chosen by counts as in
    "SuffixDecoding" (Oliaro et al., 2024).

    Args:
        min_probability: Least probability of a path worth drafting. The default suits a target
            that verifies a token more for a few percent of a pass; 0 fills every budget.
        escape: Weight of "something else follows", for a match of one token, in occurrences.
    """

    name = "suffix"

    def __init__(self, min_probability: float = 0.05, escape: float = 2.0) -> None:
        if not 0 <= min_probability <= 1:
            raise ConfigError(f"min_probability must be between 0 and 1, got {min_probability}")
        if not 0 <= escape < float("inf"):
            raise ConfigError(f"escape must be finite and not negative, got {escape}")
        self._min_probability = min_probability
        self._escape = escape

    def open(self, contexts: Sequence[DraftContext]) -> RowwiseSession:
        """Builds the automaton of each row from its passages and prompt.

        Args:
            contexts: One for each row.
        """
        return RowwiseSession(
            lambda context: _Row(_automaton(context), self._min_probability, self._escape), contexts
        )


def _automaton(context: DraftContext) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    # The prompt comes last: it is the text that the output continues.
    for text in (*context.passages, context.prompt_ids):
        automaton.start_text()
        for token in text:
            automaton.append(token)
    return automaton


class _Path(NamedTuple):
    """A way down from the last committed token; the first three fields put the best first."""

    negative_probability: float
    depth: int
    age: int
    token: int
    parent: int
    state: int
    length: int


class _Row:
    def __init__(self, automaton: SuffixAutomaton, min_probability: float, escape: float) -> None:
        self._automaton = automaton
        self._min_probability = min_probability
        self._escape = escape

    def append(self, token: int) -> None:
        self._automaton.append(token)

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        token_ids: list[int] = []
        parents: list[int] = []
        confidences: list[float] = []
        waiting: list[_Path] = []
        path = _Path(-1.0, 0, 0, ROOT, ROOT, *self._ending(ahead))
        num_paths = 0
        while len(token_ids) < budget.num_speculative_tokens:
            if path.depth < budget.max_depth:
                node = len(token_ids) - 1
                for longer in self._continued(path, node, budget.branching, num_paths):
                    num_paths += 1
                    heappush(waiting, longer)
            if not waiting:
                break
            path = heappop(waiting)
            token_ids.append(path.token)
            parents.append(path.parent)
            confidences.append(-path.negative_probability)
        return DraftTree(tuple(token_ids), tuple(parents), tuple(confidences))

    def _ending(self, ahead: Sequence[int]) -> tuple[int, int]:
        """Returns state and length of the text, or of its longest known ending with more behind."""
        automaton = self._automaton
        state, length = automaton.tip, automaton.lengths[automaton.tip]
        for token in ahead:
            state, length = automaton.advanced(state, length, token)
        return state, length

    def _continued(self, path: _Path, node: int, branching: int, age: int) -> Iterator[_Path]:
        """Yields the likeliest paths one token longer, best first.

        Where the path has come to the end of every text, its longest ending that was continued
        stands in; for the output's own end this drafts a loop as a loop.
        """
        automaton = self._automaton
        state, length = automaton.longest_continued(path.state, path.length)
        if state == ROOT_STATE:
            return
        counts = automaton.counts
        ranked = list(automaton.transitions[state].items())
        total = sum([counts[follower] for _, follower in ranked]) + self._escape / length
        if len(ranked) > 1:
            # A stable sort: of equal counts the token comes first that was first seen last.
            ranked.reverse()
            ranked.sort(key=lambda edge: counts[edge[1]], reverse=True)
        for token, follower in ranked[:branching]:
            negative = path.negative_probability * counts[follower] / total
            if -negative < self._min_probability:
                return
            yield _Path(negative, path.depth + 1, age, token, node, follower, length + 1)
            age += 1
