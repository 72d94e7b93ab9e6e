"""Communicators of other libraries as redblue._core takes them.

One has
    rank, ranks                      the number of this process, and how many there are
    send(to, channel, memory)        begins to send the bytes of a memoryview; neither call waits for the other rank
    receive(from, channel, memory)
    give_up(why)                     this rank fails: others that wait for it should not wait for ever
    total(numbers)                   the sums of whole numbers over all ranks, on every rank
    progress()                       moves messages on, once in a while, where they would not move without a call; it may be missing
What send and receive return has wait(seconds): is the message no longer on its way?
"""

from __future__ import annotations

import datetime
import sys
import time
import weakref
from typing import Any

import numpy as np

from .._errors import Error, InvalidProblem, Unsupported

#: Seconds to wait for another rank.
PATIENCE = 600.0


def communicator(comm: Any, patience: float = PATIENCE) -> Any:
    """The communicator that stands for mpi4py's, for a process group or mesh of torch, or for one that is made like these.

    `patience` is for what all ranks do together here: a copy of the communicator, and totals.
    """
    if all(hasattr(comm, name) for name in ("send", "receive", "give_up", "total", "rank", "ranks")):
        return comm
    if hasattr(comm, "Isend") and hasattr(comm, "py2f"):
        return Mpi(comm, patience)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available():
        if hasattr(comm, "get_group") and hasattr(comm, "mesh"):
            if comm.ndim != 1:
                raise Unsupported(f"comm is a mesh of {comm.ndim} dimensions: give one of them, as in mesh['sequence']")
            comm = comm.get_group()
        if comm is distributed.GroupMember.NON_GROUP_MEMBER:
            raise InvalidProblem("comm is a group without this process: call attention on the ranks of the group alone")
        if isinstance(comm, distributed.ProcessGroup):
            return Group(comm, patience)
    raise TypeError(
        f"comm is a {type(comm).__name__}: give a communicator of mpi4py, a process group of torch.distributed, or a DeviceMesh of "
        "one dimension"
    )


#: Tags of a call: channels 0 to 2, and a rank's last words. Each call has its own, so that no message of a call that failed is taken
#: for one of the next.
TAGS = 4
FAILURE = 3


class _Duplicate:
    """What is kept with a communicator of mpi4py."""

    def __init__(self, comm: Any):
        self.comm, self.calls = comm, 0
        self.words: list[bytes] = []  # last words, which MPI may read later


class Mpi:
    """A communicator of mpi4py. Messages go over a duplicate, which is kept with it and freed with it."""

    _key: Any = None

    def __init__(self, comm: Any, patience: float = PATIENCE):
        from mpi4py import MPI

        if comm == MPI.COMM_NULL:
            raise InvalidProblem("comm is MPI.COMM_NULL, which has no ranks: call attention on the ranks of a communicator alone")
        if comm.Is_inter():
            raise Unsupported("comm is an intercommunicator, of two groups: give one of a single group, such as comm.Merge()")
        self._patience, self.rank, self.ranks = patience, comm.Get_rank(), comm.Get_size()
        if Mpi._key is None:
            Mpi._key = MPI.Comm.Create_keyval(delete_fn=lambda _comm, _key, kept: kept.comm.Free())
        kept = comm.Get_attr(Mpi._key)
        if kept is None:
            duplicate, request = comm.Idup()
            self._finish(request)
            kept = _Duplicate(duplicate)
            comm.Set_attr(Mpi._key, kept)
        own = kept.comm
        largest_tag = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767  # what MPI promises
        self._tag = TAGS * (kept.calls % (largest_tag // TAGS))
        kept.calls += 1
        self._comm, self._byte, self._any, self._int64 = own, MPI.BYTE, MPI.ANY_SOURCE, MPI.INT64_T
        self._words, self._heard = kept.words, False

    #: Bytes at once: a count of MPI 3.1 has 31 bits.
    MOST = 1 << 30

    def _pieces(self, memory: memoryview) -> list[memoryview]:
        return [memory[at : at + self.MOST] for at in range(0, max(1, len(memory)), self.MOST)]

    def send(self, to: int, channel: int, memory: memoryview) -> Any:
        return _Requests(self, [self._comm.Isend([piece, self._byte], to, self._tag + channel) for piece in self._pieces(memory)])

    def receive(self, source: int, channel: int, memory: memoryview) -> Any:
        return _Requests(self, [self._comm.Irecv([piece, self._byte], source, self._tag + channel) for piece in self._pieces(memory)])

    def progress(self) -> None:
        self._comm.Iprobe(self._any, self._tag + FAILURE)

    def give_up(self, why: str) -> None:
        if self._heard:  # who gave up told everyone
            return
        words = f"rank {self.rank}: {why}".encode()[:4096]
        self._words.append(words)
        for other in range(self.ranks):
            if other != self.rank:
                self._comm.Isend([words, self._byte], other, self._tag + FAILURE)

    def require_nobody_gave_up(self) -> None:
        if self._comm.Iprobe(self._any, self._tag + FAILURE):
            words = bytearray(4096)
            self._comm.Recv([words, self._byte], self._any, self._tag + FAILURE)
            self._heard = True
            raise Error(words.rstrip(b"\0").decode())

    def total(self, numbers: list[int]) -> list[int]:
        sums = np.array(numbers, dtype=np.int64)
        own = sums.copy()
        self._finish(self._comm.Iallreduce([own, self._int64], [sums, self._int64]))
        return [int(n) for n in sums]

    def _finish(self, request: Any) -> None:
        """Waits for what all ranks do together."""
        if not _until(request.Test, self._patience):
            raise Error(f"rank {self.rank}: some rank has not come within {self._patience:g} s: is it alive, and does it call this?")


class _Requests:
    def __init__(self, comm: Mpi, requests: list):
        self._comm, self._requests = comm, requests

    def wait(self, seconds: float) -> bool:
        return _until(lambda: all([r.Test() for r in self._requests]), seconds, self._comm.require_nobody_gave_up)


def _until(is_done: Any, seconds: float, meanwhile: Any = lambda: None) -> bool:
    """Is it done before these seconds are over? It looks soon at first, then in a while."""
    deadline, turns = time.monotonic() + seconds, 0
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        meanwhile()
        turns += 1
        if turns > 100:
            time.sleep(2e-5)
    return True


class Group:
    """A process group of torch.distributed whose backend sends memory of the CPU, such as gloo and mpi."""

    #: Tags of our messages begin here, apart from those of others on the group; CALLS calls have tags of their own.
    TAG, CALLS = 7_301_000, 1 << 24
    _calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __init__(self, group: Any, patience: float = PATIENCE):
        import torch
        import torch.distributed as dist

        backend = dist.get_backend(group)
        if backend == "nccl":
            raise Unsupported("comm is a group of nccl, which sends memory of GPUs: make one with backend='gloo' or 'cpu:gloo,cuda:nccl'")
        self._torch, self._dist, self._group, self._patience = torch, dist, group, patience
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        calls = Group._calls.get(group, 0)
        Group._calls[group] = calls + 1
        self._tag = self.TAG + TAGS * (calls % self.CALLS)

    def _tensor(self, memory: memoryview) -> Any:
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)

    def send(self, to: int, channel: int, memory: memoryview) -> Any:
        tensor = self._tensor(memory)
        return _Work(self._dist.isend(tensor, group=self._group, group_dst=to, tag=self._tag + channel), tensor)

    def receive(self, source: int, channel: int, memory: memoryview) -> Any:
        tensor = self._tensor(memory)
        return _Work(self._dist.irecv(tensor, group=self._group, group_src=source, tag=self._tag + channel), tensor)

    def give_up(self, why: str) -> None:
        """Others see it when this process ends, or when their patience does: a group has no way to tell them."""

    def total(self, numbers: list[int]) -> list[int]:
        sums = self._torch.tensor(numbers, dtype=self._torch.int64)
        try:
            self._dist.all_reduce(sums, group=self._group, async_op=True).wait(datetime.timedelta(seconds=self._patience))
        except RuntimeError as e:  # gloo's words for a rank that is gone, and for one that is late
            raise Error(f"rank {self.rank}: some rank does not come: is it alive, and does it call this? {e}") from e
        return [int(n) for n in sums]


class _Work:
    def __init__(self, work: Any, tensor: Any):
        self._work, self._tensor, self._done = work, tensor, False

    def wait(self, seconds: float) -> bool:
        if not self._done and seconds > 0:  # gloo knows only by waiting, and closes the connection where the time is over
            self._done = bool(self._work.wait(datetime.timedelta(seconds=seconds)))
        return self._done
