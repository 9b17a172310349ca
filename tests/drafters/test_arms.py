from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from specrag.drafters.arms import ArmGoodput

ARMS = ("usual", "rival", "third")


def two_domains(arms: tuple[str, ...] = ARMS) -> ArmGoodput:
    return ArmGoodput({"code": "usual", "text": "rival"}, arms)


def run(
    goodput: ArmGoodput, num_rounds: int, tokens: dict[str, int], domain: str = "code"
) -> list[str]:
    """Lets the chosen arm bring its tokens, round by round."""
    chosen = []
    for _ in range(num_rounds):
        chosen.append(goodput.choose(domain, explore=True))
        goodput.record(domain, chosen[-1], tokens[chosen[-1]], 1.0)
    return chosen


def test_each_domain_begins_with_its_configured_arm() -> None:
    goodput = two_domains()

    assert goodput.choose("code", explore=True) == "usual"
    assert goodput.choose("text", explore=True) == "rival"


def test_every_32nd_round_tries_the_others_in_turn() -> None:
    chosen = run(two_domains(), 160, {"usual": 3, "rival": 1, "third": 1})
    tried = [(place, arm) for place, arm in enumerate(chosen, start=1) if arm != "usual"]

    assert tried == [(32, "rival"), (64, "third"), (96, "rival"), (128, "third"), (160, "rival")]


def test_a_better_arm_takes_over_after_enough_rounds_and_stays() -> None:
    goodput = two_domains(("usual", "rival"))
    chosen = run(goodput, 32 * 16 + 64, {"usual": 2, "rival": 3})

    assert chosen[: 32 * 16].count("rival") == 16
    assert chosen[32 * 16 :].count("usual") == 64 // 32


def test_an_arm_that_is_hardly_better_does_not_take_over() -> None:
    goodput = two_domains(("usual", "rival"))
    run(goodput, 32 * 20, {"usual": 100, "rival": 104})

    assert goodput.choose("code", explore=False) == "usual"


def test_an_arm_that_fell_behind_is_left_again() -> None:
    goodput = two_domains(("usual", "rival"))
    run(goodput, 32 * 17, {"usual": 2, "rival": 3})
    assert goodput.choose("code", explore=False) == "rival"

    run(goodput, 1000, {"usual": 2, "rival": 1})
    assert goodput.choose("code", explore=False) == "usual"


def test_costs_count_as_much_as_tokens() -> None:
    goodput = two_domains(("usual", "rival"))
    for _ in range(20):
        goodput.record("code", "usual", 2, 1.0)
        goodput.record("code", "rival", 3, 2.0)

    assert goodput.choose("code", explore=False) == "usual"


def test_what_is_learned_in_one_domain_is_not_taken_for_another() -> None:
    goodput = two_domains()
    run(goodput, 32 * 40, {"usual": 1, "rival": 4, "third": 2})

    assert goodput.choose("code", explore=False) == "rival"
    run(goodput, 20, {"usual": 1, "rival": 1, "third": 1}, domain="text")
    assert goodput.report()["text"] == {"rival": {"rounds": 20, "tokens": 20, "goodput": 1.0}}


def test_a_round_that_must_not_explore_takes_the_best_known() -> None:
    goodput = two_domains()
    for _ in range(31):
        goodput.record("code", "usual", 1, 1.0)

    assert goodput.choose("code", explore=False) == "usual"
    assert goodput.choose("code", explore=True) == "rival"
    assert goodput.choose("code", explore=True) == "rival"  # asking changes nothing


def test_a_single_arm_is_always_taken() -> None:
    goodput = ArmGoodput({"code": "usual"}, ["usual"])

    assert set(run(goodput, 100, {"usual": 1})) == {"usual"}


def test_the_report_holds_what_was_recorded() -> None:
    goodput = two_domains()
    assert goodput.report() == {}

    goodput.record("code", "third", 4, 2.0)
    assert goodput.report() == {"code": {"third": {"rounds": 1, "tokens": 4, "goodput": 2.0}}}


def test_threads_lose_no_round() -> None:
    goodput = two_domains()
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda _: run(goodput, 250, dict.fromkeys(ARMS, 1)), range(4)):
            pass
    rounds = [arm["rounds"] for arm in goodput.report()["code"].values()]

    assert sum(rounds) == 1000
