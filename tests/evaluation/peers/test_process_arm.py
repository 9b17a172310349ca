"""The wire to another process: stray prints, crashes, hangs and bad replies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specrag.evaluation.peers import catalog
from specrag.evaluation.peers.process_arm import PeerArm, PeerError

WORKERS = Path(catalog.__file__).parent / "workers"
FAKE = Path(__file__).with_name("fake_worker.py")


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECRAG_WORKERS", str(WORKERS))


def start(mode: str = "", request_s: float = 30) -> PeerArm:
    told = {"mode": mode, "threads": 3}
    return PeerArm("peer:fake", Path(sys.executable), FAKE, told, request_s=request_s)


def test_prints_of_libraries_do_not_reach_the_wire() -> None:
    arm = start()
    try:
        assert arm.details == {"version": "1", "threads": "3"}
        for count in (4, 5):
            sample = arm.decode([7, 8], count, 2)
            assert sample.token_ids == (7, 8, count, 2)
            assert (sample.prefill_ms, sample.decode_ms) == (None, 2.0)
        assert sys.platform != "linux" or (arm.peak_memory_mb() or 0) > 1
    finally:
        arm.close()
    arm.close()
    with pytest.raises((PeerError, ValueError)):
        arm.decode([1], 1)


@pytest.mark.parametrize(
    ("mode", "match"),
    [
        ("crash", "has ended; its last words: .*out of memory"),
        ("hang", "did not answer within 1 s"),
        ("lacks", "sent a reply that lacks something: KeyError"),
        ("no json", "sent what is no JSON"),
    ],
)
def test_a_failing_engine_is_named_with_its_last_words(mode: str, match: str) -> None:
    arm = start(mode, request_s=1)
    try:
        with pytest.raises(PeerError, match=f"the engine peer:fake {match}"):
            arm.decode([1], 1)
    finally:
        arm.close()
    assert arm._process.poll() is not None


def test_an_engine_that_does_not_start_leaves_no_process() -> None:
    with pytest.raises(PeerError, match="no such model"):
        start("no start")
