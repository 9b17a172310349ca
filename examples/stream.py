"""Shows text as it is generated; an accepted draft arrives as several tokens at once."""

from __future__ import annotations

from specrag import SamplingParams, SpeculativeGenerator


def main() -> None:
    generator = SpeculativeGenerator.from_pretrained("smollm2-135m-instruct", drafter="suffix")
    messages = [{"role": "user", "content": "Repeat twice: the quick brown fox jumps."}]
    sizes = []
    finish_reason = None
    for update in generator.stream(messages, SamplingParams(max_tokens=32)):
        print(update.text, end="", flush=True)
        sizes.append(len(update.token_ids))
        finish_reason = update.finish_reason
    print(f"\n\ntokens of each round: {sizes}")
    print(f"{sum(sizes)} tokens in {len(sizes)} rounds, ended by: {finish_reason}")


if __name__ == "__main__":
    main()
