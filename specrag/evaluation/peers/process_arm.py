"""An arm in a process of its own: JSON lines to a worker script and back."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from specrag.errors import SpecragError
from specrag.evaluation.speed.arm import Arm, Sample

_START_S, _REQUEST_S = 600.0, 600.0
_LINES_SHOWN = 4
_HINT = "leave it out of --peers, or install it anew with `specrag peers install`"
# Arms take turns: one that waits must not keep the processors busy.
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "TOKENIZERS_PARALLELISM": "false"}


class PeerError(SpecragError):
    """Another engine that could not be started, or that failed."""


class PeerArm(Arm):
    """Another engine.

    Args:
        name: Such as ``peer:llama.cpp``.
        python: Interpreter that runs the worker.
        worker: The worker script.
        start: What the worker is told first: model, threads, options.
        start_s: Seconds that it may take to load the model.
        request_s: Seconds that a prompt may take.

    Raises:
        PeerError: The worker did not start; the message holds its last words.
    """

    def __init__(
        self,
        name: str,
        python: Path,
        worker: Path,
        start: Mapping[str, Any],
        *,
        start_s: float = _START_S,
        request_s: float = _REQUEST_S,
    ) -> None:
        self.name = name
        self._request_s = request_s
        self._peak_mb: float | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the arm
        self._process = self._started(python, worker, str(start.get("threads", 1)))
        self._replies: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            ready = self._ask(start, start_s)
        except BaseException:
            self.close()
            raise
        details = ready.get("details")
        if not isinstance(details, dict):
            raise self._failed("sent no details first")
        self.details = {key: str(value) for key, value in details.items()}

    def decode(self, prompt_ids: Sequence[int], max_tokens: int, min_tokens: int = 0) -> Sample:
        """Has the worker decode one prompt.

        Args:
            prompt_ids: The prompt.
            max_tokens: Most tokens of the answer.
            min_tokens: Fewest tokens before an end.

        Raises:
            PeerError: It failed, or did not answer in time.
        """
        request = {
            "prompt_ids": list(prompt_ids),
            "max_tokens": max_tokens,
            "min_tokens": min_tokens,
        }
        reply = self._ask(request, self._request_s)
        try:
            self._peak_mb = _number(reply.get("peak_memory_mb", self._peak_mb))
            return Sample(
                tuple(int(token) for token in reply["token_ids"]),
                _number(reply["prefill_ms"]),
                float(reply["decode_ms"]),
                tuple(float(each) for each in reply.get("step_ms", ())),
                tuple(int(each) for each in reply.get("step_tokens", ())),
                mean_acceptance_length=_number(reply.get("mean_acceptance_length")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed(
                f"sent a reply that lacks something or is malformed: {error!r}"
            ) from error

    def peak_memory_mb(self) -> float | None:
        """Returns the peak that the worker told with its last reply."""
        return self._peak_mb

    def close(self) -> None:
        """Ends the worker and all that it started; harmless to repeat."""
        if self._log.closed:
            return
        with contextlib.suppress(ProcessLookupError):  # all of it may have ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._log):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not sent has no reader left
                    pipe.close()

    def _started(self, python: Path, worker: Path, threads: str) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [str(python), str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **_PASSIVE, "OMP_NUM_THREADS": threads},
                start_new_session=True,  # so that servers it starts can be ended with it
            )
        except OSError as error:
            self._log.close()
            raise PeerError(
                f"the engine {self.name} cannot be started: {error}", hint=_HINT
            ) from error

    def _read(self) -> None:
        assert self._process.stdout is not None, "the worker's replies are piped"
        with self._process.stdout as lines:
            for line in lines:
                self._replies.put(line)
        self._replies.put(b"")

    def _ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None, "requests are piped"
        if self._process.stdin.closed:
            raise PeerError(f"the engine {self.name} is closed", hint=_HINT)
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            line = self._replies.get(timeout=seconds)
        except OSError as error:
            raise self._failed("has ended") from error
        except queue.Empty as error:
            raise self._failed(f"did not answer within {seconds:.0f} s") from error
        if not line:
            raise self._failed("has ended")
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise self._failed(f"sent what is no JSON: {line[:80]!r}") from error
        if not isinstance(reply, dict):
            raise self._failed(f"sent what is no object: {line[:80]!r}")
        return reply

    def _failed(self, what: str) -> PeerError:
        """Ends the worker, which would go on computing or answer too late; tells its last words."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
        said = f"; its last words: {' | '.join(lines)}" if lines else ""
        self.close()
        return PeerError(f"the engine {self.name} {what}{said}", hint=_HINT)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
