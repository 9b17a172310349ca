"""Datastore drafting: the answer goes on as its longest known ending did in a corpus."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import NamedTuple

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.rows import RowwiseSession
from specrag.drafters.stores.arrays import MAX_MATCH
from specrag.drafters.stores.file import (
    MANIFEST_NAME,
    datastores_dir,
    open_datastore,
    read_manifest,
)
from specrag.drafters.stores.manifest import DatastoreManifest
from specrag.drafters.stores.token_datastore import TokenDatastore
from specrag.errors import ConfigError, IndexFormatError, suggest
from specrag.home import home
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)


class DatastoreDrafter(Drafter):
    """Copies what followed the longest ending of the text that occurs in a datastore of tokens.

    The datastore is built once from any corpus, such as the documents of an index, and mapped
    into memory; a lookup takes tens of microseconds. Prompt and output are only looked up, not
    copied from: the suffix drafter does that, and both may draft together.

    What followed the occurrences (of many, a sample at even distances) becomes a tree, the
    likeliest paths first. After a match of L tokens, a token that followed c of its n occurrences
    is given the probability ``c / (n + escape / L)``, as the suffix drafter does; each token
    drafted lengthens the match by one.

    "REST: Retrieval-Based Speculative Decoding" (He et al., 2023).

    Args:
        path: Folder of a datastore, or one with a datastore for each of several tokenizers.
        min_match: Tokens of the shortest ending worth a draft. Its confidences say how little a
            match of one token is to be trusted; two or three draft less and waste less.
        max_match: Tokens of the longest ending looked up.
        num_samples: Most occurrences taken into account.
        min_probability: Least probability of a path worth drafting; 0 fills every budget.
        escape: Weight of "something else follows", for a match of one token, in occurrences.

    Raises:
        ConfigError: A parameter is not in its range.
        IndexFormatError: There is no datastore, or it is damaged.
    """

    name = "datastore"

    def __init__(
        self,
        path: str | Path,
        min_match: int = 1,
        max_match: int = 16,
        *,
        num_samples: int = 64,
        min_probability: float = 0.05,
        escape: float = 2.0,
    ) -> None:
        if not 1 <= min_match <= max_match <= MAX_MATCH:
            raise ConfigError(
                f"datastore needs 1 <= min_match <= max_match <= {MAX_MATCH}, got "
                f"min_match={min_match} and max_match={max_match}"
            )
        if num_samples < 1:
            raise ConfigError(f"num_samples must be at least 1, got {num_samples}")
        if not 0 <= min_probability <= 1:
            raise ConfigError(f"min_probability must be between 0 and 1, got {min_probability}")
        if not 0 <= escape < float("inf"):
            raise ConfigError(f"escape must be finite and not negative, got {escape}")
        self._rules = _Rules(min_match, max_match, num_samples, min_probability, escape)
        self._found = _manifests(Path(path))
        self._opened: tuple[Path, TokenDatastore] | None = None

    @classmethod
    def named(cls, argument: str) -> DatastoreDrafter:
        """Makes the drafter that a user named, with its default parameters.

        Args:
            argument: Name of an index whose datastore was built, or the path of a datastore.

        Raises:
            ConfigError: There is no such datastore; the hint says how to build it.
        """
        is_name = Path(argument).name == argument and not argument.startswith(".")
        path = Path(argument).expanduser()
        place: Path | None = None
        if argument and is_name and datastores_dir(argument).is_dir():
            place = datastores_dir(argument)
        elif argument and (path / MANIFEST_NAME).is_file():
            place = path
        if place:
            made = cls(place)
            made.name = f"{cls.name}:{argument}"  # two datastores may draft together
            return made
        built = [place.name for place in (home() / "datastores").glob("[!.]*/")]
        raise ConfigError(
            f"there is no datastore {argument!r}; {suggest(argument, built)}",
            hint=f"build it: specrag index build {argument or 'NAME'} --datastore, then name it "
            f"as datastore:{argument or 'NAME'}",
        )

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Opens the datastore that was built with the target's tokens.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            costs: Not used.

        Raises:
            ConfigError: None was built for this tokenizer.
            IndexFormatError: It is damaged.
        """
        wanted = tokenizer.vocabulary_fingerprint
        for place, manifest in self._found:
            if manifest.tokenizer == wanted and manifest.vocab_size <= target.vocab_size:
                self._open(place, manifest)
                return
        _, newest = self._found[0]
        models = ", ".join(dict.fromkeys(manifest.model for _, manifest in self._found))
        raise ConfigError(
            f"the datastore of {newest.source!r} holds the tokens of {models}; {target.name} has "
            f"another vocabulary ({wanted}, {target.vocab_size} tokens)",
            hint=f"build one for it: specrag index build {newest.source} --datastore --model "
            f"{target.name}",
        )

    def open(self, contexts: Sequence[DraftContext]) -> RowwiseSession:
        """Starts to look up what each row says.

        Args:
            contexts: One for each row.
        """
        store = self._open(*self._found[0]) if self._opened is None else self._opened[1]
        return RowwiseSession(
            lambda context: _Row(store, self._rules, context.prompt_ids), contexts
        )

    def _open(self, place: Path, manifest: DatastoreManifest) -> TokenDatastore:
        if self._opened is None or self._opened[0] != place:
            self._opened = place, open_datastore(place, manifest)
        return self._opened[1]


def _manifests(path: Path) -> list[tuple[Path, DatastoreManifest]]:
    """Returns the datastores in a folder or right below it, the newest first."""
    below = [] if (path / MANIFEST_NAME).is_file() else sorted(path.glob(f"*/{MANIFEST_NAME}"))
    found: list[tuple[Path, DatastoreManifest]] = []
    problem: IndexFormatError | None = None
    for place in [manifest.parent for manifest in below] or [path]:
        try:
            found.append((place, read_manifest(place)))
        except IndexFormatError as error:  # those of other tokenizers may be whole
            problem = problem or error
    if problem and not found:
        raise problem
    if problem:
        _LOG.warning("left out: %s", problem.message)
    return sorted(found, key=lambda entry: entry[1].created_at, reverse=True)


class _Rules(NamedTuple):
    """The parameters of the drafter, see there."""

    min_match: int
    max_match: int
    num_samples: int
    min_probability: float
    escape: float


class _Path(NamedTuple):
    """A way down from the last token; the first three fields put the best first."""

    negative_probability: float
    depth: int
    age: int
    token: int
    parent: int
    rows: list[list[int]]


class _Row:
    """Knows the last tokens of one row, which is all that is ever looked up."""

    def __init__(self, store: TokenDatastore, rules: _Rules, prompt_ids: Sequence[int]) -> None:
        self._store = store
        self._rules = rules
        self._ending = list(prompt_ids[-rules.max_match :])

    def append(self, token: int) -> None:
        self._ending.append(token)
        del self._ending[: -self._rules.max_match]

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        if min(budget.num_speculative_tokens, budget.max_depth) < 1:
            return DraftTree()
        rules = self._rules
        match = self._store.longest_match([*self._ending, *ahead], rules.max_match)
        if match.length < rules.min_match:
            return DraftTree()
        rows = self._store.continuations(match, rules.num_samples, budget.max_depth)
        # Each row stands for so many occurrences, which the escape is weighed against.
        weight = match.num_occurrences / len(rows)
        return _tree(rows, _Growth(match.length, weight, rules, budget, count(1)))


class _Growth(NamedTuple):
    """How a tree grows out of continuations.

    Attributes:
        length: Tokens of the match that they follow.
        weight: Occurrences that each of them stands for.
        rules: The drafter's parameters.
        budget: The largest tree allowed.
        ages: Numbers the paths in the order in which they are found.
    """

    length: int
    weight: float
    rules: _Rules
    budget: DraftBudget
    ages: Iterator[int]

    def continued(self, path: _Path, node: int) -> Iterator[_Path]:
        """Yields the likeliest paths one token longer, best first.

        Args:
            path: The path.
            node: Its last node.
        """
        depth = path.depth
        groups: defaultdict[int, list[list[int]]] = defaultdict(list)
        for row in path.rows:
            if len(row) > depth:
                groups[row[depth]].append(row)
        # Of equal counts the token with the lower id, which most tokenizers give the commoner one.
        ranked = sorted([(-len(rows), token) for token, rows in groups.items()])
        total = self.rules.escape / (self.length + depth) / self.weight
        total -= sum([negative_count for negative_count, _ in ranked])
        for negative_count, token in ranked[: self.budget.branching]:
            negative = -path.negative_probability * negative_count / total
            if -negative < self.rules.min_probability:
                return
            yield _Path(negative, depth + 1, next(self.ages), token, node, groups[token])


def _tree(rows: list[list[int]], growth: _Growth) -> DraftTree:
    token_ids: list[int] = []
    parents: list[int] = []
    confidences: list[float] = []
    waiting: list[_Path] = []
    path = _Path(-1.0, 0, 0, ROOT, ROOT, rows)
    while len(token_ids) < growth.budget.num_speculative_tokens:
        for longer in growth.continued(path, len(token_ids) - 1):
            heappush(waiting, longer)
        if not waiting:
            break
        path = heappop(waiting)
        token_ids.append(path.token)
        parents.append(path.parent)
        confidences.append(-path.negative_probability)
    return DraftTree(tuple(token_ids), tuple(parents), tuple(confidences))
