"""Phrasings that have no answer, and near misses that have one."""

from __future__ import annotations

import pytest

from specrag.evaluation.metrics.abstention import abstains


@pytest.mark.parametrize(
    "response",
    [
        "",
        " \n",
        "I don't know.",
        "I don’t know the answer.",
        "I do not really know. I'm sorry",
        "We do not have enough information to answer.",
        "I cannot answer this question.",
        "I can't determine that from the passages.",
        "I'm sorry, but I am unable to find it.",
        "I am not sure.",
        "I'm not aware of any such film.",
        "I have no information about him.",
        "The context does not mention her birthplace.",
        "The provided passages don't explicitly state who won.",
        "The text given above does not say.",
        "His age is not mentioned in the context.",
        "The date is not specified.",
        "This isn't stated here.",
        "It was not provided in any of the documents.",
        "There is no information about the score.",
        "There is not enough information.",
        "It cannot be determined from this.",
        "It is not possible to say.",
        "It is unclear who wrote it.",
        "It is not known when he died.",
        "Unknown.",
        "Unanswerable",
        "N/A",
        "我不知道。",
        "抱歉，我不清楚。",
        "不知道",
        "无法回答。",
        "根据上下文无法确定。",
        "我们无法从中得知答案。",
        "文中没有提到他的年龄。",
        "上下文未说明。",
        "没有足够的信息。",
    ],
)
def test_no_answer(response: str) -> None:
    assert abstains(response)


@pytest.mark.parametrize(
    "response",
    [
        "Paris.",
        "I know that it is Paris.",
        "It is not known for its size but for its beer.",
        "I can't stress enough that it is Paris.",
        "I cannot recommend it: the answer is Paris.",
        "Water does not contain carbon.",
        "The clinics do not provide free care.",
        "I am sorry for your loss; it was in 1990.",
        "He did not know that she had left.",
        "They cannot say no to Paris.",
        "There is no evidence that it helps.",
        "It was not given to Spain but to France.",
        "The information age",
        "No information technology was used; it was done by hand.",
        "The unknown soldier",
        "The Unknown",
        "She was not sure, but the judge was: guilty.",
        "No.",
        "maybe",
        "Nothing Compares 2 U",
        "他不知道自己已经获胜。",
        "科学家无法确定其年龄，但估计为两千年。",
        "知道",
        "没有",
    ],
)
def test_an_answer(response: str) -> None:
    assert not abstains(response)
