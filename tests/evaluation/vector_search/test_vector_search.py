from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specrag.errors import ConfigError, SpecragError
from specrag.evaluation.plots.canvas import as_svg
from specrag.evaluation.vector_search import run, worker
from specrag.evaluation.vector_search.plot import cost_against_size, recall_against_time
from specrag.evaluation.vector_search.points import (
    points,
    queries,
    true_neighbours,
    write_points,
)
from specrag.evaluation.vector_search.run import Report, run_vector_benchmark
from specrag.evaluation.vector_search.settings import VectorBenchmarkSettings
from specrag.evaluation.vector_search.table import vector_table
from tests.oracles.nearest import nearest

SETTINGS = VectorBenchmarkSettings(
    sizes=(1200, 300), factories=("flat", "SQ8"), dimension=8, k=3, num_queries=5
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Measured in this process, which is quicker than one of its own for each step."""
    folder, kept = tmp_path_factory.mktemp("work"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_call", lambda step, task: getattr(worker, step)(task))
        found = run_vector_benchmark(
            SETTINGS, workspace=folder, keep=lambda so_far: kept.append(len(so_far["results"]))
        )
    assert kept == [1, 2, 3, 4]
    assert list(folder.iterdir()) == []
    return found


def test_points_have_length_one_and_their_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    made = np.concatenate(list(points(200, 384, 3)))
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    cosines = np.sort(made @ made.T, axis=1)
    assert 0.35 < np.median(cosines[:, -6:-1]) < 0.65  # of one cluster
    assert abs(np.median(cosines)) < 0.05  # of others
    np.testing.assert_array_equal(made, np.concatenate(list(points(200, 384, 3))))
    assert not np.isin(made, np.concatenate(list(points(200, 384, 4)))).all()


def test_queries_are_new_points_of_the_same_clusters() -> None:
    made = np.concatenate(list(points(300, 64, 0)))
    asked = queries(20, 300, 64, 0)
    nearest_cosines = (asked @ made.T).max(axis=1)
    assert (nearest_cosines > 0.4).all()
    assert (nearest_cosines < 0.999).all()


def test_points_in_a_file_are_the_same(tmp_path: Path) -> None:
    write_points(tmp_path / "points.npy", 70, 8, 1)
    np.testing.assert_array_equal(
        np.load(tmp_path / "points.npy"), np.concatenate(list(points(70, 8, 1)))
    )


def test_true_neighbours_are_the_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrag.evaluation.vector_search.points._BLOCK", 7)
    draw = np.random.default_rng(0)
    vectors, asked = (draw.normal(size=(num, 5)).astype(np.float32) for num in (40, 6))
    rows = true_neighbours(asked, vectors, 9)
    by_row = dict(enumerate(vectors.tolist()))
    for query, found in zip(asked.tolist(), rows.tolist(), strict=True):
        assert found == [row for _, row in nearest(query, by_row, 9)]


def test_each_size_and_factory_is_measured(report: Report) -> None:
    rows = report["results"]
    assert [(row["num_vectors"], row["name"]) for row in rows] == [
        (300, "flat"), (300, "SQ8"), (1200, "flat"), (1200, "SQ8"),
    ]  # fmt: skip
    for row in rows:
        assert row["disk_bytes"] > row["num_vectors"] * 8 * 4
        assert row["build_seconds"] > 0
        for served in (row["mapped"], row["read"]):
            assert served["recall"] >= 0.9
            for name in (
                "one_thread_ms",
                "all_threads_ms",
                "add_ms",
                "delete_ms",
                "after_delete_ms",
            ):
                assert 0 < served[name]["p50"] <= served[name]["p95"]
        assert row["mapped"]["mapped"] is True
        assert row["read"]["mapped"] is False
    assert report["kind"] == "vector_search"
    assert json.loads(json.dumps(report)) == json.loads(json.dumps(report))


def test_the_table_tells_each_row_in_100_columns(report: Report) -> None:
    lines = vector_table(report).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("Flat" in line for line in lines) == 2
    assert sum("SQ8" in line for line in lines) == 2


def test_a_table_of_large_figures_still_fits(report: Report) -> None:
    row = report["results"][0]
    times = {"p50": 1234.5, "p95": 2345.6}
    served = {**row["read"], "anonymous_mib": 54321.0, "one_thread_ms": times}
    large = {
        **row, "num_vectors": 10_000_000, "factory": "IDMap2,IVF16384,PQ96",
        "build_seconds": 9999.0, "disk_bytes": 16e9, "read": served, "mapped": served,
    }  # fmt: skip
    text = vector_table({**report, "results": [large]})
    assert max(map(len, text.splitlines()[1:])) <= 100
    assert "1,234" in text or "1,235" in text


def test_the_picture_names_units_and_arms(report: Report) -> None:
    drawn = as_svg(cost_against_size(report))
    for text in (
        "vectors",
        "search, P50 (ms)",
        "recall@k",
        "memory when read (MB)",
        "build (s)",
        "SQ8",
    ):
        assert f">{text}" in drawn or text in drawn
    assert cost_against_size({**report, "results": []}) is None


def test_a_step_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    write_points(tmp_path / "points.npy", 50, 8, 0)
    (tmp_path / "index").mkdir()
    ballast = np.ones(60_000_000)  # which the other process must not be charged with
    built = run._call(
        "build",
        {
            "points": str(tmp_path / "points.npy"),
            "folder": str(tmp_path / "index"),
            "settings": {"factory": "SQ8"},
        },
    )
    assert built["factory"] == "IDMap2,SQ8"
    assert 10 < built["build_peak_mib"] < ballast.nbytes / 2**20


def test_a_process_that_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(SpecragError, match=r"(?s)cannot build the index 'SQ8'.*no-such-file"):
        run._call("build", {"points": "no-such-file", "settings": {"factory": "SQ8"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": (5,)}, "sizes must be at least k=10, got"),
        ({"sizes": ()}, "sizes must be"),
        ({"factories": ()}, "no factory is named"),
        ({"num_queries": 0}, "num_queries must be at least 1, got 0"),
        ({"nprobe": 0}, "nprobe must be at least 1"),
    ],
)
def test_settings_that_measure_nothing_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        VectorBenchmarkSettings(**change)  # type: ignore[arg-type]


def test_effort_is_measured_where_there_is_a_choice(tmp_path: Path) -> None:
    settings = VectorBenchmarkSettings(
        sizes=(1500,), factories=("flat", "HNSW8"), dimension=8, k=3, num_queries=5
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_call", lambda step, task: getattr(worker, step)(task))
        found = run_vector_benchmark(settings, workspace=tmp_path)
    flat, graph = found["results"]
    assert flat["read"]["efforts"] == graph["mapped"]["efforts"] == []
    assert [row["setting"] for row in graph["read"]["efforts"]] == ["ef_search"] * 6
    assert graph["read"]["efforts"][-1]["recall"] == 1
    assert "HNSW8: ef_search" in as_svg(recall_against_time(found))
    assert recall_against_time({"results": [flat]}) is None
