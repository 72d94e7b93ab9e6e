"""Processes that run one function on a group of gloo, and what becomes of a case on them: results, an error, or a hang."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing import connection
from typing import Any

import numpy as np

from .._errors import Error
from .cases import Case

#: Seconds that a process may take to start: it imports torch.
START = 300
#: Seconds that other ranks have once one has failed.
GRACE = 2


class Failed(Exception):
    """No result: what became of which rank."""

    def __init__(self, what: str, hung: bool):
        super().__init__(what)
        self.hung = hung


def _context() -> Any:
    """Processes that are forked from one which has imported torch, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["redblue._check.worker"])
    return context


def _rank(*given: Any) -> None:
    from .worker import serve  # the caller's process needs no torch

    serve(*given)


class Processes:
    """The ranks of one group. After a failure they are ended, and the next case starts others."""

    def __init__(self, fn: bytes, ranks: int, patience: float, outside: int = 0):
        self._fn, self._ranks, self._patience, self._outside = fn, ranks, patience, outside
        self._processes: list[Any] = []
        self._pipes: list[Any] = []
        self._last: list[Any] = []
        self._folder: Any = None
        self._warm = False

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.end()

    def _start(self) -> None:
        context = _context()
        world = self._ranks + self._outside
        self._folder = tempfile.TemporaryDirectory(prefix="redblue-check-")
        path = os.path.join(self._folder.name, "store")
        for rank in range(world):
            here, there = context.Pipe()
            last = context.Array("c", 128, lock=False)
            given = (there, last, self._fn, rank, world, self._outside, path, self._patience)
            process = context.Process(target=_rank, args=given, daemon=True)
            try:
                process.start()
            except BaseException:
                self.end()
                raise
            there.close()
            self._processes.append(process)
            self._pipes.append(here)
            self._last.append(last)
        try:
            self._answers(range(world), START)
        except Failed as e:
            self.end()
            main = getattr(sys.modules["__main__"], "__file__", None)
            hint = f"; does {main} call check outside of `if __name__ == '__main__':`?" if main and "exit status 1" in str(e) else ""
            raise Error(f"the processes that try the function did not start: {e}{hint}") from None

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._processes, self._pipes, self._last, self._folder = [], [], [], None
        self._warm = False

    def run(self, case: Case, rows: list[np.ndarray], keys: list[np.ndarray]) -> list[dict[str, Any]]:
        """What each rank of the group found; raises Failed."""
        if not self._processes:
            self._start()
        members = range(self._outside, self._outside + self._ranks)
        try:
            for rank in members:
                self._pipes[rank].send((case, rows[rank - self._outside], keys[rank - self._outside], self._ranks))
            seconds = self._patience * (1 if self._warm else 3) + 5  # a first call may import much
            found = self._answers(members, seconds)
            self._warm = True
            return found
        except BaseException:
            self.end()
            raise

    def _answers(self, members: range, seconds: float) -> list[Any]:
        waiting: dict[Any, int] = {self._pipes[rank]: rank for rank in members}
        found: dict[int, Any] = {}
        failures: dict[int, str] = {}
        deadline = time.monotonic() + seconds
        while waiting and (left := deadline - time.monotonic()) > 0:
            ready: Any = connection.wait(list(waiting), left)
            for pipe in ready:
                rank = waiting.pop(pipe)
                try:
                    kind, answer = pipe.recv()
                except (EOFError, OSError):
                    self._processes[rank].join(5)
                    kind, answer = "raised", f"its process ended with exit status {self._processes[rank].exitcode}"
                if kind == "raised":
                    failures[rank] = f"rank {rank - self._outside}: {answer}"
                    deadline = min(deadline, time.monotonic() + GRACE)
                else:
                    found[rank] = answer
        if not waiting and not failures:
            return [found[rank] for rank in members]
        hung = bool(waiting) and not failures or any("imed out" in text for text in failures.values())
        told = list(failures.values())
        for rank in waiting.values():
            last = self._last[rank].value.decode()
            doing = f", last call: {last}" if last else ""
            told.append(f"rank {rank - self._outside} did not come back{'' if failures else f' in {seconds:.0f} s'}{doing}")
        raise Failed("; ".join(told), hung)
