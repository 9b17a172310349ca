"""A drafter of one's own, which guesses known sentences; runs on a toy model without a download.

The output equals plain decoding whatever is guessed; only the number of passes changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from specrag import SamplingParams, SpeculativeGenerator
from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.tree import DraftTree
from specrag.drafters.rows import RowwiseSession
from specrag.models.tiny import tiny_target, tiny_tokenizer


class BoilerplateDrafter(Drafter):
    """Drafts the rest of each known text that goes on from the last two tokens."""

    name = "boilerplate"

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self.texts = [list(text) for text in texts]

    def open(self, contexts: Sequence[DraftContext]) -> DraftSession:
        """Starts a session that follows each row of the batch; rows may join it later."""
        return RowwiseSession(lambda context: _Row(self.texts, context.prompt_ids), contexts)


class _Row:
    def __init__(self, texts: list[list[int]], prompt_ids: Sequence[int]) -> None:
        self.texts, self.end = texts, list(prompt_ids[-2:])

    def append(self, token: int) -> None:
        self.end = [*self.end, token][-2:]

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        end = [*self.end, *ahead][-2:]  # as if the tokens ahead had been emitted already
        places = ((text, i + 2) for text in self.texts for i in range(len(text) - 2))
        tree = DraftTree.from_paths(text[i:] for text, i in places if text[i - 2 : i] == end)
        return tree.truncated(budget.num_speculative_tokens, budget.max_depth)


def main() -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    params = SamplingParams(max_tokens=48, ignore_eos=True)
    plain = SpeculativeGenerator(target, tokenizer, "none").generate("tell me", params)
    # What the toy model likes to say stands in for the boilerplate of a real one.
    drafter = BoilerplateDrafter([plain.token_ids[8:40], tokenizer.encode("kind regards")])
    drafted = SpeculativeGenerator(target, tokenizer, drafter).generate("tell me", params)
    print("equal to plain decoding:", drafted.token_ids == plain.token_ids)
    print(f"passes: {plain.stats.num_passes} plainly, {drafted.stats.num_passes} with the drafter")


if __name__ == "__main__":
    main()
