"""Which drafter to ask for a kind of text: the configured one, until another has done better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

_EXPLORE_EVERY = 32
"""Rounds of a domain for each one that tries another arm than the best known."""

_ENOUGH_ROUNDS = 16
"""Rounds of an arm before it can take over. They are few, but a false change is found out soon:
the arm then gets all rounds but the exploring ones."""

_MARGIN = 1.05
"""How much better an arm must be than the configured one to take over."""

_DISCOUNT = 0.997
"""Of the evidence with each round of an arm: a memory of about 300 rounds; with fewer, the
rare long copies decide."""


@dataclass(slots=True)
class _Record:
    rounds: int = 0
    num_tokens: int = 0
    recent_tokens: float = 0.0
    recent_cost: float = 0.0
    last_round: int = 0

    @property
    def goodput(self) -> float:
        return self.recent_tokens / self.recent_cost if self.recent_cost else 0.0


class ArmGoodput:
    """Tokens for the cost of each arm in each domain, and the choice that follows from them.

    Depends on what was recorded alone, never on a clock or on chance, so the same requests in the
    same order lead to the same choices. Safe to use from several threads.

    Args:
        configured: Domain to the arm it begins with.
        arms: Names of all arms.
    """

    def __init__(self, configured: Mapping[str, str], arms: Sequence[str]) -> None:
        self._configured = dict(configured)
        self._arms = tuple(arms)
        self._records = {(domain, arm): _Record() for domain in configured for arm in arms}
        self._rounds = dict.fromkeys(configured, 0)
        self._lock = Lock()

    def choose(self, domain: str, explore: bool) -> str:
        """Returns the arm for a round; changes nothing.

        Args:
            domain: A configured domain.
            explore: Whether the arm that was not tried for longest has its turn, when one is due.
        """
        with self._lock:
            best = self._best(domain)
            others = [arm for arm in self._arms if arm != best]
            last = {arm: self._records[domain, arm].last_round for arm in others}
            is_due = self._rounds[domain] - max(last.values(), default=0) >= _EXPLORE_EVERY - 1
            if explore and others and is_due:
                return min(others, key=lambda arm: last[arm])
            return best

    def record(self, domain: str, arm: str, num_tokens: int, cost: float) -> None:
        """Takes note of a round.

        Args:
            domain: A configured domain.
            arm: The arm that proposed.
            num_tokens: Tokens that the round brought.
            cost: Its cost; a pass over one token costs 1.0.
        """
        with self._lock:
            record = self._records[domain, arm]
            self._rounds[domain] += 1
            record.rounds += 1
            record.last_round = self._rounds[domain]
            record.num_tokens += num_tokens
            record.recent_tokens = _DISCOUNT * record.recent_tokens + num_tokens
            record.recent_cost = _DISCOUNT * record.recent_cost + cost

    def report(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns ``rounds``, ``tokens`` and ``goodput`` by domain and arm, as far as known."""
        with self._lock:
            found: dict[str, dict[str, dict[str, float]]] = {}
            for (domain, arm), record in self._records.items():
                if record.rounds:
                    found.setdefault(domain, {})[arm] = {
                        "rounds": record.rounds,
                        "tokens": record.num_tokens,
                        "goodput": record.goodput,
                    }
            return found

    def _best(self, domain: str) -> str:
        configured = self._configured[domain]
        proven = [arm for arm in self._arms if self._records[domain, arm].rounds >= _ENOUGH_ROUNDS]
        if configured not in proven:
            return configured
        best = max(proven, key=lambda arm: self._records[domain, arm].goodput)
        least = _MARGIN * self._records[domain, configured].goodput
        return best if self._records[domain, best].goodput > least else configured
