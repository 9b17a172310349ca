"""A suffix automaton over several texts, built token by token, with occurrence counts."""

from __future__ import annotations

ROOT_STATE = 0
"""The state of the empty string."""

_MAX_COUNTED = 64
"""Most states whose count one token raises. Real text has chains of about ten; without a limit
a text of one repeated token would take quadratic time."""


class SuffixAutomaton:
    """All substrings of the texts seen so far; strings that always end together share a state.

    Texts are apart from each other: no substring runs across a border. The newest text is the one
    that grows. Time for a token is amortised constant, and there are fewer than two states a token.

    Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985), in the form
    for several texts. Counts are raised along the suffix links of each new token, at most 64 of
    them, beginning at the longest strings; beyond that those of the shortest ones lag behind.

    Attributes:
        transitions: For each state, token to the next state; the order is that of first sight.
        links: For each state, the one of its longest suffix that also ends elsewhere; -1 at the
            root.
        lengths: Tokens of the longest string of each state.
        counts: Occurrences of each state's strings; not kept for the root.
        tip: State of the newest text as a whole.
    """

    def __init__(self) -> None:
        self.transitions: list[dict[int, int]] = [{}]
        self.links: list[int] = [-1]
        self.lengths: list[int] = [0]
        self.counts: list[int] = [0]
        self.tip = ROOT_STATE

    def __len__(self) -> int:
        return len(self.links)

    def start_text(self) -> None:
        """Ends the newest text and starts another, empty one."""
        self.tip = ROOT_STATE

    def append(self, token: int) -> None:
        """Extends the newest text.

        Args:
            token: Its next token.
        """
        known = self.transitions[self.tip].get(token)
        # Another text may have begun with the same tokens: then no string here is new.
        self.tip = self._add_state(token) if known is None else self._split(self.tip, token, known)
        self._count(self.tip)

    def advanced(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Returns the longest ending of a string and one token more that the texts contain.

        Nothing is added to the texts, so this follows a string that is only assumed.

        Args:
            state: State of the string.
            length: Tokens of the string.
            token: The token behind it.

        Returns:
            State and tokens of the ending; the root and 0 when the token is unknown.
        """
        while token not in self.transitions[state]:
            if state == ROOT_STATE:
                return ROOT_STATE, 0
            state = self.links[state]
            length = self.lengths[state]
        return self.transitions[state][token], length + 1

    def longest_continued(self, state: int, length: int) -> tuple[int, int]:
        """Returns the longest suffix of a string that something has followed somewhere.

        Args:
            state: State of the string.
            length: Tokens of the string.

        Returns:
            State and tokens of the suffix; the root and 0 when nothing followed any.
        """
        while state != ROOT_STATE and not self.transitions[state]:
            state = self.links[state]
            length = self.lengths[state]
        return state, length

    def _add_state(self, token: int) -> int:
        added = self._new(self.lengths[self.tip] + 1, {}, ROOT_STATE, 0)
        state = self.tip
        while state >= 0 and token not in self.transitions[state]:
            self.transitions[state][token] = added
            state = self.links[state]
        if state >= 0:
            self.links[added] = self._split(state, token, self.transitions[state][token])
        return added

    def _split(self, state: int, token: int, following: int) -> int:
        """Returns the state of just ``state`` + ``token``, cut out of one with longer strings."""
        length = self.lengths[state] + 1
        if self.lengths[following] == length:
            return following
        clone = self._new(
            length,
            dict(self.transitions[following]),
            self.links[following],
            self.counts[following],
        )
        self.links[following] = clone
        while state >= 0 and self.transitions[state].get(token) == following:
            self.transitions[state][token] = clone
            state = self.links[state]
        return clone

    def _new(self, length: int, transitions: dict[int, int], link: int, count: int) -> int:
        self.transitions.append(transitions)
        self.links.append(link)
        self.lengths.append(length)
        self.counts.append(count)
        return len(self.links) - 1

    def _count(self, state: int) -> None:
        for _ in range(_MAX_COUNTED):
            if state == ROOT_STATE:
                return
            self.counts[state] += 1
            state = self.links[state]
