"""Control-C while redblue works."""

import contextlib
import os
import signal
import threading

import pytest


@contextlib.contextmanager
def interrupted_after(seconds):
    """What runs in it ends with KeyboardInterrupt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells make background jobs ignore it
    try:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
