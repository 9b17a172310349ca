"""Rows that join a running batch and leave it, each with its own settings; runs on a toy model."""

from __future__ import annotations

from specrag import SamplingParams, SpeculativeGenerator
from specrag.decoding.generator import result_of
from specrag.models.tiny import tiny_target, tiny_tokenizer


def main() -> None:
    generator = SpeculativeGenerator(tiny_target(), tiny_tokenizer(), "suffix")
    greedy = SamplingParams(max_tokens=40, ignore_eos=True)
    sampled = SamplingParams(max_tokens=12, temperature=0.7, seed=7, ignore_eos=True)
    session = generator.open([generator.request("tell me", greedy)])
    try:
        for _ in range(4):
            session.step()
        late = session.add(generator.request("and me", sampled))
        guest = session.add(generator.request("me too", greedy))
        rounds = 0
        while not session.finished:
            updates = session.step()  # the first of these rounds reads the new prompts
            rounds += 1
            for row, update in updates.items():
                if update.finish_reason:
                    print(f"row {row} ended in round {rounds}: {update.finish_reason}")
            if rounds == 3:
                session.cancel(guest)
    finally:
        session.close()

    for index, row in enumerate(session.rows):
        result = result_of(row, session.timings)
        print(f"row {index}: {len(result.token_ids)} tokens, {result.finish_reason}")
    alone = generator.generate("and me", sampled)
    print("the late row is as if alone:", tuple(session.rows[late].token_ids) == alone.token_ids)


if __name__ == "__main__":
    main()
