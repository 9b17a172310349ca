"""Several drafters at once, and what each of them brought; runs on a toy model."""

from __future__ import annotations

from specrag import SamplingParams, SpeculativeGenerator
from specrag.models.tiny import tiny_target, tiny_tokenizer


def main() -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    params = SamplingParams(max_tokens=64, ignore_eos=True)
    plain = SpeculativeGenerator(target, tokenizer, "none").generate("tell me", params)
    print(f"none: {plain.stats.num_passes} passes")

    # Both draft, and the likeliest nodes of both are verified; or a drafter for each kind of text.
    # With models of your own also "suffix+draft:MODEL" and "suffix>draft:MODEL".
    for name in ("suffix+prompt_lookup", "selector"):
        mixed = SpeculativeGenerator(target, tokenizer, name).generate("tell me", params)
        stats = mixed.stats
        equal = mixed.token_ids == plain.token_ids
        print(f"\n{name}: {stats.num_passes} passes, equal to plain decoding: {equal}")
        # A token that both proposed counts for both.
        for kind, found in (("drafter", stats.drafters), ("kind of text", stats.domains)):
            for key, counters in sorted(found.items()):
                print(
                    f"  {kind} {key}: {counters.num_accepted_tokens} of "
                    f"{counters.num_draft_tokens} tokens accepted, in {counters.num_drafts} drafts"
                )


if __name__ == "__main__":
    main()
