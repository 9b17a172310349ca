"""Changes an index in processes that are killed at random moments, and checks what is left.

Run as a program: ``killing.py FOLDER KILLS SEED``. Processes are forked, so that a kill costs
milliseconds; it prints how many were killed in the middle of something.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from tqdm import tqdm

from specrag.retrieval.build import build_index, open_writer
from specrag.retrieval.check import check_index
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.recipe import IndexRecipe

ENCODER = HashingEncoder(16)


def documents(path: Path) -> dict[str, str]:
    with DocumentIndex.open(path) as index:
        return {info.id: index.document(info.id).text for info in index.documents()}


def change(what: str, recipe: IndexRecipe, path: Path, version: int) -> None:
    """Makes one change; each of them publishes exactly once."""
    if what == "build":
        for file in recipe.corpus.iterdir():
            file.write_text(f"{file.stem} in version {version} of the corpus.")
        build_index(recipe, ENCODER, path)
    elif what == "force":
        build_index(recipe, ENCODER, path, force=True)
    else:
        with open_writer(recipe, ENCODER, path) as writer:
            if what == "add":
                for number in range(5):
                    writer.put(Document(f"made{number}", f"{number} {version}.", "s"))
            elif what == "remove":
                for number in range(5):
                    if writer.find_id(f"made{number}"):
                        writer.remove(f"made{number}")
            writer.commit(compact=what == "compact")


def expected(
    what: str, before: dict[str, str], recipe: IndexRecipe, version: int
) -> dict[str, str]:
    after = dict(before)
    if what in ("build", "force"):
        after |= {file.name: file.read_text() for file in recipe.corpus.iterdir()}
    elif what == "add":
        after |= {f"made{number}": f"{number} {version}." for number in range(5)}
    elif what == "remove":
        after = {key: text for key, text in before.items() if not key.startswith("made")}
    return after


class Kills:
    """Kills changes of one index until it killed enough of them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.path = root / "index"
        (root / "corpus").mkdir()
        for number in range(6):
            (root / "corpus" / f"{number}.txt").write_text(f"{number} at first.")
        self.recipe = IndexRecipe(
            "small", root / "corpus", "hashing", chunk_size=20, chunk_overlap=5
        )
        build_index(self.recipe, ENCODER, self.path)
        self.num_killed = self.version = 0
        self.longest = 0.05

    def try_one(self) -> None:
        """Starts one change, kills it after a while, and checks what is left."""
        self.version += 1
        what = self.random.choice(["build", "force", "add", "remove", "compact"])
        before = documents(self.path)
        self.kill(what)
        report = check_index(self.path)
        if not report.is_sound:
            sys.exit(f"killed in {what}: {report.problems}")
        found = documents(self.path)
        if found not in (before, expected(what, before, self.recipe, self.version)):
            sys.exit(f"killed in {what}: neither old nor new: {found}, {before}")
        if what == "build":  # the files may be newer than the index now
            build_index(self.recipe, ENCODER, self.path)

    def kill(self, what: str) -> None:
        """Makes one change in a fork that is killed at a random moment."""
        child = os.fork()
        if not child:
            change(what, self.recipe, self.path, self.version)
            os._exit(0)
        started = time.perf_counter()
        time.sleep(self.random.random() * self.longest)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            self.num_killed += 1
        elif os.WEXITSTATUS(status):
            sys.exit(f"{what} failed by itself")
        else:
            taken = time.perf_counter() - started
            self.longest = max(0.01, min(self.longest, 1.5 * taken))


def main(root: Path, num_kills: int, seed: int) -> None:
    tqdm.set_lock(threading.RLock())  # its own lock is shared with forks, and dies held with one
    kills = Kills(root, seed)
    while kills.num_killed < num_kills:
        kills.try_one()
    with open_writer(kills.recipe, ENCODER, kills.path) as writer:
        writer.put(Document("last", "The last one.", "s"))
        writer.commit(compact=True)
    if any(one.name.startswith(".building-") for one in kills.path.iterdir()):
        sys.exit("what dead writers left was not removed")
    print(f"killed {kills.num_killed} of {kills.version}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
