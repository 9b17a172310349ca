"""Asks the handbook a question and prints the answer, its sources and the gate's decision."""

from __future__ import annotations

from dataclasses import replace

from specrag import SpecRAG


def main() -> None:
    rag = SpecRAG.load("qa")  # SpecRAG.load("qa", docs="./notes") asks a folder of yours
    params = replace(rag.params, max_tokens=32)

    answer = rag.ask("Which zones does the gate know?", mode="always", params=params)
    print(answer.text, "\n")
    for citation in answer.citations:
        place = f"{citation.document}, characters {citation.start}-{citation.end}"
        print(f"[{citation.n}] {place}, score {citation.score:.2f}\n    {citation.quote}")

    # Without a mode the gate decides; a greeting needs no documents.
    for text in ("Which zones does the gate know?", "Hello!"):
        decision, passages = rag.explain(text)
        print(f"\n{text}\n  retrieve: {decision.retrieve}, zone: {decision.zone}")
        print(f"  {decision.reason}\n  passages: {len(passages)}")

    usage = answer.usage
    print(f"\n{usage.prompt_tokens} prompt tokens, {usage.context_tokens} of them passages")
    print(f"mean acceptance length {answer.speculation.mean_acceptance_length:.2f}")


if __name__ == "__main__":
    main()
