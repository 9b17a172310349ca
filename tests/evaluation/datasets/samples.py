"""One small set in each format, written by hand, and what should come of it."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PARAGRAPH = "The mill stands at the river. It was built in 1702."


def _lines(*rows: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Mill",
            "paragraphs": [
                {
                    "context": _PARAGRAPH,
                    "qas": [
                        {
                            "id": "m1",
                            "question": "When was the mill built?",
                            "answers": [
                                {"text": "1702", "answer_start": 45},
                                {"text": "in 1702", "answer_start": 42},
                            ],
                        },
                        {
                            "id": "m2",
                            "question": "Who owns it?",
                            "is_impossible": True,
                            "answers": [],
                        },
                    ],
                }
            ],
        }
    ],
}
SQUAD_ROWS = _lines(
    {
        "id": "a",
        "title": "Mill",
        "context": _PARAGRAPH,
        "question": "When was it built?",
        "answers": {"text": ["1702"], "answer_start": [45]},
    }
)
NQ_OPEN = _lines(
    {"question": "who built the mill", "answer": ["Ada Miller", "A. Miller"]},
    {"question": "where is the mill", "answer": ["at the river"]},
)
POPQA_TABLE = (
    "id\tsubj\tprop\tobj\tquestion\tpossible_answers\ts_pop\n"
    '7\tAda\toccupation\tmiller\tWhat does Ada do?\t["miller", "owner"]\t120\n'
)
POPQA = json.dumps(
    [
        {
            "id": 7,
            "prop": "occupation",
            "question": "What does Ada do?",
            "possible_answers": '["miller"]',
            "s_pop": 120,
            "paragraphs": [
                {"title": "Ada", "text": "Ada is a miller.", "is_supporting": True},
                {"title": "Bo", "text": "Bo is a smith.", "is_supporting": False},
            ],
        },
        {
            "id": 8,
            "prop": "occupation",
            "question": "What does Bo do?",
            "possible_answers": '["smith"]',
            "s_pop": 3,
            "paragraphs": [{"title": "Bo", "text": "Bo is a smith.", "is_supporting": True}],
        },
    ]
)
HOTPOTQA = json.dumps(
    [
        {
            "_id": "h1",
            "question": "Which river is the mill of Ada at?",
            "answer": "Isen",
            "type": "bridge",
            "context": [
                ["Ada", ["Ada owns the mill.", " She is old."]],
                ["Mill", ["It is at the Isen."]],
            ],
            "supporting_facts": [["Mill", 0]],
        }
    ]
)
HOTPOTQA_COLUMNS = _lines(
    {
        "id": "h1",
        "question": "Which river?",
        "answer": "Isen",
        "context": {"title": ["Ada", "Mill"], "sentences": [["Ada owns it."], ["At the Isen."]]},
        "supporting_facts": {"title": ["Mill"], "sent_id": [0]},
    }
)
PUBMEDQA = json.dumps(
    {
        "11": {
            "QUESTION": "Does flour dust harm?",
            "CONTEXTS": ["Dust was measured.", "Harm was found."],
            "final_decision": "yes",
        },
        "12": {"QUESTION": "Does bread heal?", "CONTEXTS": ["No effect."], "final_decision": "no"},
    }
)
SPEC_BENCH = _lines(
    {"question_id": 81, "category": "writing", "turns": ["Write a verse.", "Again."]},
    {"question_id": 500, "category": "rag", "turns": ["Answer from the text."], "reference": ["x"]},
)
GSM8K = _lines({"question": "2 mills with 3 wheels?", "answer": "2*3=<<2*3=6>>6\n#### 6"})
HUMANEVAL = _lines(
    {
        "task_id": "HumanEval/0",
        "prompt": 'def double(x):\n    """Doubles."""\n',
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
)
MBPP = _lines(
    {
        "id": 1,
        "input": "Write a function.\nIt should pass: assert double(2)==4",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
        "language": "python",
    }
)
PLAIN = _lines({"query": "Where is the mill?", "gold": "at the river", "kind": "place"})
TABLE = 'question,answer\n"Where, exactly, is it?",at the river\n'

FILES: Mapping[str, tuple[str, str]] = {
    "squad": ("squad", json.dumps(SQUAD)),
    "squad, several lines": ("squad", json.dumps(SQUAD, indent=2)),
    "squad rows": ("squad_rows", SQUAD_ROWS),
    "nq": ("nq_open", NQ_OPEN),
    "popqa table": ("popqa", POPQA_TABLE),
    "popqa": ("popqa", POPQA),
    "hotpotqa": ("hotpotqa", HOTPOTQA),
    "hotpotqa columns": ("hotpotqa", HOTPOTQA_COLUMNS),
    "pubmedqa": ("pubmedqa", PUBMEDQA),
    "spec bench": ("spec_bench", SPEC_BENCH),
    "gsm8k": ("gsm8k", GSM8K),
    "humaneval": ("humaneval", HUMANEVAL),
    "mbpp": ("mbpp", MBPP),
    "plain": ("plain", PLAIN),
    "table": ("plain", TABLE),
}
"""Format that each is told as, and its content."""

PACKINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}


def write_beir(folder: Path) -> Path:
    """Writes a small BEIR folder."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": "d1", "title": "Mill", "text": _PARAGRAPH},
        {"_id": "d2", "title": "Smith", "text": "The smith is old."},
    ]
    queries = [{"_id": "q1", "text": "When was the mill built?"}, {"_id": "q2", "text": "unjudged"}]
    (folder / "corpus.jsonl").write_text(_lines(*corpus))
    (folder / "queries.jsonl").write_text(_lines(*queries))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n")
    return folder


def write_cranfield(folder: Path) -> Path:
    """Writes a small Cranfield folder; its query numbers are not those of the judgements."""
    folder.mkdir(parents=True)
    (folder / "cran.all.1400").write_bytes(
        b".I 1\r\n.T\r\nflow past\r\na wing\r\n.A\r\nx\r\n.W\r\nThe flow is slow.\r\n"
        b".I 2\n.T\nheat\n.W\nThe heat is high.\n"
    )
    (folder / "cran.qry").write_text(".I 001\n.W\nhow slow\nis the flow\n.I 004\n.W\nheat\n.I\n")
    (folder / "cranqrel").write_text("1 1 2\n2 2 1\n2 1 3\n")
    return folder
