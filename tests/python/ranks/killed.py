"""A rank of a gloo group is killed: all others raise redblue.Error within their patience."""

import os
import signal
import tempfile
import time

import torch
import torch.distributed as dist

import redblue
from redblue._ranks import comm

SIZE, VICTIM, PATIENCE = 3, 1, 20.0


class Killed(comm.Group):
    """It is killed when others have one of its messages in which they agree, and one of two with its rows."""

    sent = 0

    def send(self, to, channel, memory):
        Killed.sent += 1
        if Killed.sent == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().send(to, channel, memory)


def of_rank(rank, folder, moment, all_connected):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=SIZE)
    all_connected.wait()  # a rank killed before would fail torch's own call above on the others, not ours below
    q, k, v = (torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3))
    call = {"comm": dist.group.WORLD, "M": 1000, "patience": PATIENCE}
    began = time.monotonic()
    try:
        if moment == "between the passes":
            o = redblue.attention(q, k, v, **call)
        if rank == VICTIM:
            if moment != "half-way":
                os.kill(os.getpid(), signal.SIGKILL)
            comm.Group = Killed
        if moment == "between the passes":
            o.sum().backward()
        else:
            redblue.attention(q, k, v, **call)
    except redblue.Error as e:
        print(f"rank {rank} after {time.monotonic() - began:.1f} s: {e}", flush=True)
        assert time.monotonic() - began < 2 * PATIENCE
        os._exit(0)  # gloo's own end might wait for the rank that is gone
    print(f"rank {rank} ran", flush=True)
    os._exit(1)


def kill_one(moment):
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("fork")  # torch is there already
        of_all = (folder, moment, context.Barrier(SIZE, timeout=4 * PATIENCE))
        processes = [context.Process(target=of_rank, args=(rank, *of_all)) for rank in range(SIZE)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(4 * PATIENCE)
        codes = [process.exitcode for process in processes]
        for process in processes:
            process.kill()
    assert codes == [-signal.SIGKILL if rank == VICTIM else 0 for rank in range(SIZE)], (moment, codes)
    print(f"killed {moment}: right", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for moment in ("before", "half-way", "between the passes"):
        kill_one(moment)
