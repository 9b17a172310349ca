"""The wire to another process: stray prints, crashes, hangs and bad replies."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import pytest

from specrag.evaluation.peers import catalog
from specrag.evaluation.peers.process_arm import PeerArm, PeerError

BAD_REPLIES = ("text for a time", "text for tokens", "no list", "null")
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
    with pytest.raises(PeerError, match="is closed"):
        arm.decode([1], 1)


@pytest.mark.parametrize(
    ("mode", "match"),
    [
        ("crash", "has ended; its last words: .*out of memory"),
        ("hang", "did not answer within 1 s"),
        ("no json", "sent what is no JSON"),
        ("no object", "sent what is no object"),
        ("lacks", "lacks something or is malformed: KeyError"),
        *((mode, "is malformed") for mode in BAD_REPLIES),
    ],
)
def test_a_failing_engine_is_named_and_ended(mode: str, match: str) -> None:
    arm = start(mode, request_s=1 if mode == "hang" else 30)
    with pytest.raises(PeerError, match=f"the engine peer:fake .*{match}") as raised:
        arm.decode([1], 1)
    assert "--peers" in str(raised.value.hint)
    assert arm._process.poll() is not None, "one that hangs would go on computing"
    with pytest.raises(PeerError, match="is closed"):
        arm.decode([1], 1)
    arm.close()


@pytest.mark.parametrize(
    ("mode", "match"),
    [("no start", "no such model"), ("no details", "sent no details first")],
)
def test_an_engine_that_does_not_start_leaves_no_process(mode: str, match: str) -> None:
    with pytest.raises(PeerError, match=match):
        start(mode)


def test_an_interpreter_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="peer:fake cannot be started"):
        PeerArm("peer:fake", tmp_path / "python", FAKE, {})


@pytest.mark.skipif(sys.platform != "linux", reason="reads the table of processes")
def test_closing_ends_what_the_worker_started_too() -> None:
    arm = start("child")
    group = arm._process.pid
    assert len(members(group)) == 2
    arm.close()
    for _ in range(100):
        if not members(group):
            return
        time.sleep(0.05)
    pytest.fail("a child of the worker is left")


def members(group: int) -> list[str]:
    """Processes of a group that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            state, _, its_group = status.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(status.parent.name)
    return found
