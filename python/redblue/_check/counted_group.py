"""A process group of gloo that counts what a function sends and receives over it.

All functions of torch.distributed, functional collectives too, end in a method of a process group. This one counts and hands the
call on. Bytes are those that a rank must receive, whatever gloo sends for it:

    send, receive       the tensor
    broadcast           the tensor, on each rank but the source; the source sends one to each
    gather, scatter     the parts of other ranks
    all-gather          the parts of other ranks: (P - 1) / P of the result where all are equal
    reduce-scatter      P - 1 partial sums of the rank's own part; the root of a reduce: P - 1 tensors
    all-reduce          as a reduce-scatter and an all-gather: 2 (P - 1) / P of the tensor
    all-to-all          what comes from other ranks
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any, Optional

import torch
import torch.distributed as dist


class Traffic:
    """What this process has sent and received, by kind, over all groups that are counted."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.last: Any = None  # shared memory that the caller reads, should this process hang
        self.delays: Optional[random.Random] = None  # where set, each call waits up to two milliseconds before it begins

    def begin(self, delays: Optional[int] = None) -> None:
        self.received, self.sent, self.calls = Counter(), Counter(), Counter()
        self.delays = None if delays is None else random.Random(delays)

    def add(self, kind: str, received: int, sent: int, peer: str = "") -> None:
        if self.delays is not None:
            time.sleep(self.delays.random() * 2e-3)
        self.received[kind] += received
        self.sent[kind] += sent
        self.calls[kind] += 1
        if self.last is not None:
            self.last.value = f"{kind}{peer}".encode()[:100]

    def counted(self) -> dict[str, dict[str, int]]:
        return {"received": dict(self.received), "sent": dict(self.sent), "calls": dict(self.calls)}


#: The traffic of this process.
TRAFFIC = Traffic()


def _bytes(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(_bytes(t) for t in tensors)


def _root_of(opts: tuple, named: dict) -> int:
    given = opts[0] if opts else named.get("opts")
    return 0 if given is None else int(given.rootRank)


class CountedGroup(dist.ProcessGroup):
    """Hands all calls on to a group of gloo."""

    def __init__(self, gloo: Any, rank: int, ranks: int):
        super().__init__(rank, ranks)
        self._gloo, self._rank, self._ranks = gloo, rank, ranks

    def _others(self, parts: Any) -> int:
        """Bytes of the parts of other ranks."""
        return _bytes([part for rank, part in enumerate(parts) if rank != self._rank])

    def getBackendName(self) -> str:  # noqa: N802
        return "counted"

    @property
    def group_name(self) -> str:  # functional collectives and meshes look a group up by it
        return str(dist.distributed_c10d._world.pg_names[self])

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        TRAFFIC.add("send", 0, _bytes(tensors), f" to rank {to}")
        return self._gloo.send(tensors, to, tag)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        TRAFFIC.add("receive", _bytes(tensors), 0, f" from rank {source}")
        return self._gloo.recv(tensors, source, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        TRAFFIC.add("receive", _bytes(tensors), 0, " from any rank")
        return self._gloo.recv_anysource(tensors, tag)

    def broadcast(self, tensors: Any, *opts: Any, **named: Any) -> Any:
        is_root = _root_of(opts, named) == self._rank
        n = _bytes(tensors)
        TRAFFIC.add("broadcast", 0 if is_root else n, n * (self._ranks - 1) if is_root else 0)
        return self._gloo.broadcast(tensors, *opts, **named)

    def reduce(self, tensors: Any, *opts: Any, **named: Any) -> Any:
        is_root = _root_of(opts, named) == self._rank
        n = _bytes(tensors)
        TRAFFIC.add("reduce", n * (self._ranks - 1) if is_root else 0, 0 if is_root else n)
        return self._gloo.reduce(tensors, *opts, **named)

    def gather(self, outputs: Any, inputs: Any, *opts: Any, **named: Any) -> Any:
        is_root = bool(outputs)
        TRAFFIC.add("gather", sum(self._others(parts) for parts in outputs), 0 if is_root else _bytes(inputs))
        return self._gloo.gather(outputs, inputs, *opts, **named)

    def scatter(self, outputs: Any, inputs: Any, *opts: Any, **named: Any) -> Any:
        is_root = bool(inputs)
        TRAFFIC.add("scatter", 0 if is_root else _bytes(outputs), sum(self._others(parts) for parts in inputs))
        return self._gloo.scatter(outputs, inputs, *opts, **named)

    def allgather(self, outputs: Any, inputs: Any, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("all-gather", sum(self._others(parts) for parts in outputs), _bytes(inputs) * (self._ranks - 1))
        return self._gloo.allgather(outputs, inputs, *opts, **named)

    def allgather_coalesced(self, outputs: Any, inputs: Any, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("all-gather", sum(_bytes(parts) for parts in outputs) - _bytes(inputs), _bytes(inputs) * (self._ranks - 1))
        return self._gloo.allgather_coalesced(outputs, inputs, *opts, **named)

    def _allgather_base(self, output: Any, given: Any, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("all-gather", _bytes(output) - _bytes(given), _bytes(given) * (self._ranks - 1))
        return self._gloo._allgather_base(output, given, *opts, **named)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, *_opts: Any, **_named: Any) -> Any:
        return [self._allgather_base(output, given) for output, given in zip(outputs, inputs)][-1]

    def allreduce(self, tensors: Any, *opts: Any, **named: Any) -> Any:
        n = 2 * _bytes(tensors) * (self._ranks - 1) // self._ranks
        TRAFFIC.add("all-reduce", n, n)
        return self._gloo.allreduce(tensors, *opts, **named)

    def allreduce_coalesced(self, tensors: Any, *_opts: Any, **_named: Any) -> Any:
        return [self.allreduce([tensor]) for tensor in tensors][-1]

    def reduce_scatter(self, outputs: Any, inputs: Any, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("reduce-scatter", _bytes(outputs) * (self._ranks - 1), sum(self._others(parts) for parts in inputs))
        return self._gloo.reduce_scatter(outputs, inputs, *opts, **named)

    def _reduce_scatter_base(self, output: Any, given: Any, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("reduce-scatter", _bytes(output) * (self._ranks - 1), _bytes(given) - _bytes(output))
        return self._gloo._reduce_scatter_base(output, given, *opts, **named)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, *_opts: Any, **_named: Any) -> Any:
        return [self._reduce_scatter_base(output, given) for output, given in zip(outputs, inputs)][-1]

    def alltoall(self, outputs: Any, inputs: Any, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("all-to-all", self._others(outputs), self._others(inputs))
        return self._gloo.alltoall(outputs, inputs, *opts, **named)

    def alltoall_base(self, output: Any, given: Any, output_sizes: Any, input_sizes: Any, *opts: Any, **named: Any) -> Any:
        def others(tensor: Any, sizes: Any) -> int:
            rows = tensor.shape[0]
            own = (sizes[self._rank] if sizes else rows // self._ranks) if rows else 0
            return _bytes(tensor) - (_bytes(tensor) // rows * own if rows else 0)

        TRAFFIC.add("all-to-all", others(output, output_sizes), others(given, input_sizes))
        return self._gloo.alltoall_base(output, given, output_sizes or [], input_sizes or [], *opts, **named)

    def barrier(self, *opts: Any, **named: Any) -> Any:
        TRAFFIC.add("barrier", 0, 0)
        return self._gloo.barrier(*opts, **named)

    def monitored_barrier(self, *args: Any, **kwargs: Any) -> Any:
        TRAFFIC.add("barrier", 0, 0)
        return self._gloo.monitored_barrier(*args, **kwargs)

    # Newer names of the same.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base


def _make(store: Any, rank: int, ranks: int, timeout: Any) -> CountedGroup:
    return CountedGroup(dist.ProcessGroupGloo(store, rank, ranks, timeout), rank, ranks)


def register() -> str:
    """The name of the backend, for init_process_group and new_group."""
    if "counted" not in dist.Backend.backend_list:
        dist.Backend.register_backend("counted", _make, devices=["cpu"])  # type: ignore[arg-type]
    return "counted"
