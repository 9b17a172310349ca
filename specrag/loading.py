"""One model is loaded at a time, and quietly: transformers keeps global state while it loads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.RLock()


@contextmanager
def model_loading() -> Iterator[None]:
    """Holds the lock of model loading, with the bars and notices of transformers off.

    Two threads that load at once see each other's settings (a model can come out without its
    weights), so whatever loads one does it in here. Reentrant.
    """
    from transformers.utils import logging

    with _LOCK:
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
