"""Communicators of other libraries as redblue._core takes them.

One has
    rank, ranks                      the number of this process, and how many there are
    send(to, channel, memory)        begins to send the bytes of a memoryview; neither call waits for the other rank
    receive(from, channel, memory)
    give_up(why)                     this rank fails: others that wait for it should not wait for ever
    total(numbers)                   the sums of whole numbers over all ranks, on every rank
What send and receive return has wait(seconds): is the message no longer on its way?
"""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any

from ._errors import Error, InvalidProblem, Unsupported


def communicator(comm: Any) -> Any:
    """The communicator that stands for mpi4py's, for a process group or mesh of torch, or for one that is made like these."""
    if all(hasattr(comm, name) for name in ("send", "receive", "give_up", "total", "rank", "ranks")):
        return comm
    if hasattr(comm, "Isend") and hasattr(comm, "py2f"):
        return Mpi(comm)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available():
        if hasattr(comm, "get_group") and hasattr(comm, "mesh"):
            if comm.ndim != 1:
                raise Unsupported(f"comm is a mesh of {comm.ndim} dimensions: give one of them, as in mesh['sequence']")
            comm = comm.get_group()
        if comm is distributed.GroupMember.NON_GROUP_MEMBER:
            raise InvalidProblem("comm is a group without this process: call attention on the ranks of the group alone")
        if isinstance(comm, distributed.ProcessGroup):
            return Group(comm)
    raise TypeError(
        f"comm is a {type(comm).__name__}: give a communicator of mpi4py, a process group of torch.distributed, or a DeviceMesh of "
        "one dimension"
    )


class Mpi:
    """A communicator of mpi4py. Messages go over a duplicate, which is kept with it and freed with it."""

    _key: Any = None

    def __init__(self, comm: Any):
        from mpi4py import MPI

        if Mpi._key is None:
            Mpi._key = MPI.Comm.Create_keyval(delete_fn=lambda _comm, _key, own: own.Free())
        own = comm.Get_attr(Mpi._key)
        if own is None:
            own = comm.Dup()
            comm.Set_attr(Mpi._key, own)
        self._comm, self._byte, self._any = own, MPI.BYTE, MPI.ANY_SOURCE
        self.rank, self.ranks = own.Get_rank(), own.Get_size()
        self._words: Any = None

    #: The tag of a rank's last words.
    FAILURE = 1000
    #: Bytes at once: a count of MPI 3.1 has 31 bits.
    MOST = 1 << 30

    def _pieces(self, memory: memoryview) -> list[memoryview]:
        return [memory[at : at + self.MOST] for at in range(0, max(1, len(memory)), self.MOST)]

    def send(self, to: int, channel: int, memory: memoryview) -> Any:
        return _Requests(self, [self._comm.Isend([piece, self._byte], to, channel) for piece in self._pieces(memory)])

    def receive(self, source: int, channel: int, memory: memoryview) -> Any:
        return _Requests(self, [self._comm.Irecv([piece, self._byte], source, channel) for piece in self._pieces(memory)])

    def give_up(self, why: str) -> None:
        self._words = f"rank {self.rank}: {why}".encode()
        for other in range(self.ranks):
            if other != self.rank:
                self._comm.Isend([self._words, self._byte], other, self.FAILURE)

    def require_nobody_gave_up(self) -> None:
        if self._comm.Iprobe(self._any, self.FAILURE):
            words = bytearray(4096)
            self._comm.Recv([words, self._byte], self._any, self.FAILURE)
            raise Error(words.rstrip(b"\0").decode())

    def total(self, numbers: list[int]) -> list[int]:
        return [self._comm.allreduce(n) for n in numbers]


class _Requests:
    def __init__(self, comm: Mpi, requests: list):
        self._comm, self._requests = comm, requests

    def wait(self, seconds: float) -> bool:
        deadline, turns = time.monotonic() + seconds, 0
        while not all([r.Test() for r in self._requests]):
            if time.monotonic() >= deadline:
                return False
            self._comm.require_nobody_gave_up()
            turns += 1
            if turns > 100:
                time.sleep(2e-5)
        return True


class Group:
    """A process group of torch.distributed whose backend sends memory of the CPU, such as gloo and mpi."""

    #: Tags of our messages, apart from those of others on the group.
    TAG = 7_301_000

    def __init__(self, group: Any):
        import torch
        import torch.distributed as dist

        backend = dist.get_backend(group)
        if backend == "nccl":
            raise Unsupported("comm is a group of nccl, which sends memory of GPUs: make one with backend='gloo' or 'cpu:gloo,cuda:nccl'")
        self._torch, self._dist, self._group = torch, dist, group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)

    def _tensor(self, memory: memoryview) -> Any:
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)

    def send(self, to: int, channel: int, memory: memoryview) -> Any:
        tensor = self._tensor(memory)
        return _Work(self._dist.isend(tensor, group=self._group, group_dst=to, tag=self.TAG + channel), tensor)

    def receive(self, source: int, channel: int, memory: memoryview) -> Any:
        tensor = self._tensor(memory)
        return _Work(self._dist.irecv(tensor, group=self._group, group_src=source, tag=self.TAG + channel), tensor)

    def give_up(self, why: str) -> None:
        """Others see it when this process ends, or when their patience does: a group has no way to tell them."""

    def total(self, numbers: list[int]) -> list[int]:
        sums = self._torch.tensor(numbers, dtype=self._torch.int64)
        self._dist.all_reduce(sums, group=self._group)
        return [int(n) for n in sums]


class _Work:
    def __init__(self, work: Any, tensor: Any):
        self._work, self._tensor, self._done = work, tensor, False

    def wait(self, seconds: float) -> bool:
        if not self._done and seconds > 0:  # gloo knows only by waiting, and closes the connection where the time is over
            self._done = bool(self._work.wait(datetime.timedelta(seconds=seconds)))
        return self._done
