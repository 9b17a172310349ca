"""The search: all drafters, then the settings of the best ones, then a final of the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.errors import ModelError
from specrag.evaluation.speed.measure import SpeedRun
from specrag.evaluation.tuning.advice import Advice, DrafterFigures, advise
from specrag.evaluation.tuning.candidate import ENOUGH_PROMPTS, Candidate, Result
from specrag.evaluation.tuning.grid import candidates, probes, rates
from specrag.evaluation.tuning.race import Race, all_of, halving

FINALISTS = 3

_DRAFTERS_UNTIL, _SETTINGS_UNTIL = 0.3, 0.75  # shares of the time


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search found.

    Attributes:
        plain: Figures of plain decoding in the final.
        drafters: Each drafter, the fastest first.
        sweep: All settings that were tried.
        finals: The fastest of them, measured again on all prompts.
        advice: What to use.
        notes: What was cut, and what failed.
    """

    plain: dict[str, Any]
    drafters: list[DrafterFigures]
    sweep: list[Result]
    finals: list[Result]
    advice: Advice
    notes: list[str]


def search(
    race: Race,
    drafters: Sequence[str],
    costs: PassCosts,
    level_of: Callable[[str], float],
    *,
    base: SpeculationConfig | None = None,
    rounds: int = 3,
) -> Findings:
    """Finds what is fastest on the prompts of a race.

    The final measures anew: what won the sweep by luck has no luck there.

    Args:
        race: Measures.
        drafters: Names, at least one, each once.
        costs: What a pass costs.
        level_of: Tells what a drafter takes for each level of a draft.
        base: Settings that are not tuned, and the size of drafts where a policy limits itself.
        rounds: Times that everything is decoded in the final.
    """
    settings = base or SpeculationConfig()
    most = settings.num_speculative_tokens
    levels = {drafter: level_of(drafter) for drafter in drafters}
    found = _drafters(race, drafters, most, costs, levels)
    leader, *others = [
        candidates(known.drafter, most, rates(known.chain.row), costs, known.level)
        for known in found
    ]
    # Where time runs out, the fastest drafter has been tried in all ways, and each other in its
    # likeliest ones.
    turns = chain.from_iterable(zip_longest(*others))
    tried = [*leader, *(candidate for candidate in turns if candidate is not None)]
    swept, left = halving(race, "settings", tried, keep=FINALISTS, until=_SETTINGS_UNTIL)
    finalists = left[:FINALISTS]
    run = _final(race, finalists, rounds)
    finals = race.results(run, finalists)
    advice = advise(
        finals,
        found,
        costs,
        min_acceptance=settings.min_acceptance,
        fallback=Candidate("none", most, settings.branching, settings.policy),
    )
    plain = race.rows(run)[0]
    return Findings(plain, found, race.results(swept, tried), finals, advice, race.notes)


def _drafters(
    race: Race,
    drafters: Sequence[str],
    most: int,
    costs: PassCosts,
    levels: dict[str, float],
) -> list[DrafterFigures]:
    pairs = {drafter: probes(drafter, most, costs, levels[drafter]) for drafter in drafters}
    tried = list(dict.fromkeys(candidate for pair in pairs.values() for candidate in pair))
    run = all_of(race, "drafters", tried, until=_DRAFTERS_UNTIL, warm_ups=1)
    results = {result.candidate: result for result in race.results(run, tried)}
    found = [
        DrafterFigures(drafter, results[usual], results[longest], levels[drafter])
        for drafter, (usual, longest) in pairs.items()
        if usual in results and longest in results
    ]
    if not found:
        raise ModelError("every drafter failed", hint="; ".join(race.notes))
    return sorted(found, key=lambda known: -max(known.usual.speedup, known.chain.speedup))


def _final(race: Race, finalists: Sequence[Candidate], rounds: int) -> SpeedRun:
    total = len(race.prompts)
    least = min(total, ENOUGH_PROMPTS)
    # Fewer finalists before fewer prompts than an interval needs.
    while len(finalists) > 1 and race.rounds_within(1.0, len(finalists), least) < 1:
        finalists = finalists[:-1]
    room = race.rounds_within(1.0, len(finalists), total)
    if room < 1:
        return all_of(race, "finalists", finalists, until=1.0, least=least)
    times = int(min(room, rounds))
    if times < rounds:
        race.notes.append(f"the final has {times} rounds instead of {rounds}, for lack of time")
    return race.measure("finalists", finalists, race.prompts, times)
