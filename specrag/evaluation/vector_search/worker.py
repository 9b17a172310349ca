"""Builds or searches one index in a process of its own, whose memory is then the index's.

Called as ``python -m specrag.evaluation.vector_search.worker build|serve TASK RESULT``, where TASK
and RESULT are JSON files.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from specrag.retrieval.vector_factory import VectorSettings, factory_for
from specrag.retrieval.vector_index import VectorIndex
from specrag.retrieval.vector_rows import Selection

_KIB_PER_MIB = 1024
_UPDATES = 20  # vectors added, and deleted, one at a time
_EFFORTS = {"nprobe": (1, 4, 16, 64, 256), "ef_search": (32, 64, 128, 256, 512, 1024)}


def build(task: dict[str, Any]) -> dict[str, Any]:
    """Makes an index of a file of vectors and saves it.

    Args:
        task: ``points`` is the file, ``folder`` where to save, ``settings`` those of the vectors.
    """
    settings = VectorSettings(**task["settings"])
    vectors = np.load(task["points"], mmap_mode="r").view(np.ndarray)
    start, worked = time.perf_counter(), time.process_time()
    index = VectorIndex.build(np.arange(len(vectors), dtype=np.int64), vectors, settings)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    folder = Path(task["folder"])
    index.save(folder)
    return {
        "factory": factory_for(settings, *vectors.shape),
        "build_seconds": seconds,
        "build_cpu_seconds": worked,
        "disk_bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "build_peak_mib": _peak(),
    }


def serve(task: dict[str, Any]) -> dict[str, Any]:
    """Loads an index and asks it.

    Args:
        task: ``folder`` and ``settings`` as for ``build``, ``queries`` a file of them, ``truth``
            a file of their true neighbours, ``k``, and ``mapped`` as ``VectorIndex.load`` has it.
    """
    settings, mapped = VectorSettings(**task["settings"]), bool(task["mapped"])
    queries, truth, k = np.load(task["queries"]), np.load(task["truth"]), int(task["k"])
    before, start = _memory(), time.perf_counter()
    index = VectorIndex.load(Path(task["folder"]), settings, mapped=mapped)
    load_ms = 1000 * (time.perf_counter() - start)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    single, worked, found = _ask(index, queries, k)
    after = _memory()
    efforts = [] if mapped else _efforts(index, settings, queries, truth, k)
    faiss.omp_set_num_threads(threads)
    several, _, _ = _ask(index, queries, k)
    return {
        "mapped": mapped,
        "load_ms": load_ms,
        "resident_mib": after["Rss"] - before["Rss"],
        "anonymous_mib": after["Anonymous"] - before["Anonymous"],
        "serve_peak_mib": _peak(),
        "threads": threads,
        "one_thread_ms": _percentiles(single),
        "one_thread_cpu_ms": _percentiles(worked),
        "all_threads_ms": _percentiles(several),
        "recall": _recall(found, truth, k),
        "efforts": efforts,
        "add_ms": _percentiles(_added(queries)),
        **_deleted(index, queries, found, k),
    }


def _ask(
    index: VectorIndex, queries: npt.NDArray[np.float32], k: int
) -> tuple[list[float], list[float], list[list[int]]]:
    """Returns what each query took by the clock and of this thread, and what it found."""
    index.search(queries, k)  # so that no search waits for the disk
    times, worked, found = [], [], []
    for place in range(len(queries)):
        start, began = time.perf_counter(), time.thread_time()
        hits = index.search(queries[place : place + 1], k)
        worked.append(time.thread_time() - began)
        times.append(time.perf_counter() - start)
        found.append(hits.ids[0].tolist())
    return times, worked, found


def _efforts(
    index: VectorIndex,
    settings: VectorSettings,
    queries: npt.NDArray[np.float32],
    truth: npt.NDArray[np.int64],
    k: int,
) -> list[dict[str, Any]]:
    """Returns what each step of effort costs and finds; nothing where every search is exact."""
    name = index.effort
    rows: list[dict[str, Any]] = []
    for value in _EFFORTS.get(name or "", ()):
        changed: dict[str, Any] = {str(name): value}
        other = index.searched_with(replace(settings, **changed))
        _, worked, found = _ask(other, queries, k)
        cost, recall = _percentiles(worked), _recall(found, truth, k)
        rows.append({"setting": name, "value": value, "cpu_ms": cost, "recall": recall})
    return rows


def _recall(found: list[list[int]], truth: npt.NDArray[np.int64], k: int) -> float:
    hits = [len({*row} & {*true}) for row, true in zip(found, truth.tolist(), strict=True)]
    return float(np.mean(hits)) / k


def _added(vectors: npt.NDArray[np.float32]) -> list[float]:
    """Adds as an index of segments does: a new one, saved and opened."""
    times = []
    for number in range(_UPDATES):
        with tempfile.TemporaryDirectory() as name:
            vector = vectors[number % len(vectors)][None]
            start = time.perf_counter()
            VectorIndex.build(np.array([number], dtype=np.int64), vector).save(Path(name))
            VectorIndex.load(Path(name))
            times.append(time.perf_counter() - start)
    return times


def _deleted(
    index: VectorIndex, queries: npt.NDArray[np.float32], found: list[list[int]], k: int
) -> dict[str, dict[str, float]]:
    """Deletes as an index of segments does, by excluding the id, and searches without it."""
    prepared, searched = [], []
    for number in range(_UPDATES):
        place = number % len(queries)
        gone = found[place][0]
        start = time.perf_counter()
        selection = Selection(excluded=np.array([gone], dtype=np.int64))
        index.prepare(selection)
        ready = time.perf_counter()
        ids = index.search(queries[place : place + 1], k, selection).ids
        searched.append(time.perf_counter() - ready)
        prepared.append(ready - start)
        assert gone not in ids, f"{gone} was excluded and found"
    return {"delete_ms": _percentiles(prepared), "after_delete_ms": _percentiles(searched)}


def _percentiles(times: list[float]) -> dict[str, float]:
    return {f"p{share}": 1000 * float(np.percentile(times, share)) for share in (50, 95)}


def _peak() -> float:
    told = Path("/proc/self/status")
    if told.is_file():
        # Linux lets a process inherit the other figure, below, from the one that started it.
        fields = dict(line.split(":", 1) for line in told.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / _KIB_PER_MIB
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, KiB elsewhere.
    return used / (_KIB_PER_MIB**2 if sys.platform == "darwin" else _KIB_PER_MIB)


def _memory() -> dict[str, float]:
    """Returns what is resident, and what of it no file backs; the peak where neither is told."""
    told = Path("/proc/self/smaps_rollup")
    if not told.is_file():
        return {"Rss": _peak(), "Anonymous": _peak()}
    fields = dict(line.split(":", 1) for line in told.read_text().splitlines()[1:])
    return {name: int(fields[name].split()[0]) / _KIB_PER_MIB for name in ("Rss", "Anonymous")}


_STEPS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"build": build, "serve": serve}

if __name__ == "__main__":
    task = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    Path(sys.argv[3]).write_text(json.dumps(_STEPS[sys.argv[1]](task)), encoding="utf-8")
