"""Decodes the same prompts one by one and as one batch, plainly and with drafts, side by side."""

from __future__ import annotations

import argparse
import statistics
import time

from specrag import SamplingParams, SpeculativeGenerator

PROMPTS = (
    "Explain what a hash table is.",
    "List the first ten prime numbers.",
    "Translate into French: the train leaves at noon.",
    "Write a short letter to a landlord about a broken heater.",
    "What is photosynthesis?",
    "Write a Python function that reverses a list.",
    "Name three uses of copper.",
    "Describe a walk in the rain.",
)


def seconds(generator: SpeculativeGenerator, size: int, params: SamplingParams) -> float:
    """Decodes all prompts in batches of a size."""
    started = time.perf_counter()
    for first in range(0, len(PROMPTS), size):
        generator.generate(list(PROMPTS[first : first + size]), params)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    params = SamplingParams(max_tokens=args.max_tokens, temperature=0.0)

    plain = SpeculativeGenerator.from_pretrained("smollm2-135m-instruct", drafter="none")
    drafted = SpeculativeGenerator.from_pretrained("smollm2-135m-instruct", drafter="suffix")
    arms = {(name, size): (made, size) for name, made in (("plain", plain), ("suffix", drafted))
            for size in (1, 4, 8)}  # fmt: skip
    taken: dict[tuple[str, int], list[float]] = {arm: [] for arm in arms}
    for made in (plain, drafted):
        seconds(made, 8, params)  # fills the caches of prompts, which all arms then find
    for _ in range(args.rounds):
        for arm, (made, size) in arms.items():  # interleaved: other load meets all of them
            taken[arm].append(seconds(made, size, params))
    base = statistics.median(taken["plain", 1])
    for (name, size), times in taken.items():
        print(f"{name}, batches of {size}: {base / statistics.median(times):.2f}x")


if __name__ == "__main__":
    main()
