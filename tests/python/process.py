"""New processes of Python, the memory of this one, and Control-C while redblue works."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest


def run_python(code, **environment):
    """What a new process prints."""
    command, there = [sys.executable, "-c", code], {**os.environ, **environment}
    done = subprocess.run(command, env=there, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def resident():
    """Bytes."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
