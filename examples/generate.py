"""Generates text with speculative decoding: greedy, sampled with a seed, and a batch."""

from __future__ import annotations

from specrag import SamplingParams, SpeculativeGenerator


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def main() -> None:
    # An embedded name, a hub name, a local folder or a .gguf path.
    generator = SpeculativeGenerator.from_pretrained("smollm2-135m-instruct", drafter="suffix")

    # Greedy: the same text each time.
    listing = chat("Write the numbers from 1 to 20 with commas.")
    greedy = generator.generate(listing, SamplingParams(max_tokens=32))
    print("greedy:", greedy.text)
    stats = greedy.stats
    print(
        f"{stats.num_tokens} tokens in {stats.num_passes} passes and the prompt's, "
        f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} drafted tokens accepted, "
        f"mean acceptance length {stats.mean_acceptance_length:.2f}"
    )

    # Sampled: the seed and the position decide each draw, so the seed repeats the text.
    params = SamplingParams(temperature=0.8, top_p=0.9, max_tokens=16, seed=7)
    first, second = (generator.generate(chat("Name a fruit."), params) for _ in range(2))
    print(f"sampled with seed {first.seed}:", first.text)
    print("the same again:", first.token_ids == second.token_ids)

    # A batch: each row accepts its own number of tokens. A plain text is continued as it stands.
    for result in generator.generate(
        [chat("What is the capital of France?"), "The opposite of hot is"],
        SamplingParams(max_tokens=8),
    ):
        print(f"batch ({result.finish_reason}):", result.text.strip())


if __name__ == "__main__":
    main()
