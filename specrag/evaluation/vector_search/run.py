"""Measures each kind of index at each size, each in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from specrag.errors import SpecragError
from specrag.evaluation.machine import commit, machine, versions
from specrag.evaluation.vector_search.points import queries, true_neighbours, write_points
from specrag.evaluation.vector_search.settings import VectorBenchmarkSettings

Report = dict[str, Any]
_WORKER = "specrag.evaluation.vector_search.worker"
_TOLD = 600  # letters of what a failed worker said


def run_vector_benchmark(
    settings: VectorBenchmarkSettings,
    *,
    workspace: Path | None = None,
    progress: bool = False,
    keep: Callable[[Report], None] | None = None,
) -> Report:
    """Measures vector indexes.

    Args:
        settings: What to measure.
        workspace: A folder on a disk with room for about four times the largest set of vectors;
            None for the system's folder of temporary files. It is left empty.
        progress: Whether to show a progress bar on standard error.
        keep: Called with the report after each row, so that a run that is stopped leaves one.

    Returns:
        Plain data: ``settings``, ``machine``, ``versions``, ``commit``, and ``results``, a row a
        size and factory.

    Raises:
        SpecragError: A process failed.
    """
    report: Report = {
        "kind": "vector_search",
        "settings": asdict(settings),
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "results": [],
    }
    arms = len(settings.sizes) * len(settings.factories)
    with tqdm(total=arms, desc="indexes", disable=not progress) as bar:
        for size in sorted(settings.sizes):
            with tempfile.TemporaryDirectory(dir=workspace) as name:
                folder = Path(name)
                _prepare(folder, size, settings)
                for factory in settings.factories:
                    bar.set_postfix_str(f"{factory}, {size:,} vectors")
                    report["results"].append(_measure(folder, size, factory, settings))
                    bar.update()
                    if keep is not None:
                        keep(report)
    return report


def _prepare(folder: Path, size: int, settings: VectorBenchmarkSettings) -> None:
    path = folder / "points.npy"
    write_points(path, size, settings.dimension, settings.seed)
    asked = queries(settings.num_queries, size, settings.dimension, settings.seed)
    vectors = np.load(path, mmap_mode="r")
    np.save(folder / "queries.npy", asked)
    np.save(folder / "truth.npy", true_neighbours(asked, vectors, settings.k))


def _measure(folder: Path, size: int, factory: str, settings: VectorBenchmarkSettings) -> Report:
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        task = {
            "points": str(folder / "points.npy"),
            "queries": str(folder / "queries.npy"),
            "truth": str(folder / "truth.npy"),
            "folder": saved,
            "settings": asdict(settings.vectors(factory)),
            "k": settings.k,
        }
        built = _call("build", task)
        served = [_call("serve", {**task, "mapped": mapped}) for mapped in (True, False)]
    return {"name": factory, "num_vectors": size, **built, "mapped": served[0], "read": served[1]}


def _call(step: str, task: Report) -> Report:
    """Runs a step in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        given, result = Path(name) / "task.json", Path(name) / "result.json"
        given.write_text(json.dumps(task), encoding="utf-8")
        command = [sys.executable, "-m", _WORKER, step, str(given), str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SpecragError(
                f"cannot {step} the index {task['settings']['factory']!r}: the process ended with "
                f"{done.returncode}: {done.stderr.strip()[-_TOLD:]}",
                hint="a process that was killed had too little memory: measure fewer vectors",
            )
        found: Report = json.loads(result.read_text(encoding="utf-8"))
        return found
