from __future__ import annotations

import threading

from transformers.utils import logging

from specrag.loading import model_loading


def test_one_model_is_loaded_at_a_time() -> None:
    inside = threading.Event()

    def load() -> None:
        with model_loading():
            inside.set()

    with model_loading():
        other = threading.Thread(target=load)
        other.start()
        assert not inside.wait(0.2)
        with model_loading():  # a loader may use another one
            pass
        assert not inside.wait(0.2)
    other.join()
    assert inside.is_set()


def test_the_settings_of_transformers_are_put_back() -> None:
    logging.set_verbosity_info()
    logging.enable_progress_bar()
    try:
        with model_loading():
            assert logging.get_verbosity() == logging.ERROR
            assert not logging.is_progress_bar_enabled()
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity_warning()
