"""One rank of redblue.distributed.check: a process that runs the function which is tried, case by case."""

from __future__ import annotations

import datetime
import hashlib
import os
import pickle
import re
import traceback
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .cases import Case, arrays_of
from .counted_group import TRAFFIC, register


class WrongResult(Exception):
    """What the function returned is no result at all."""


def serve(connection: Any, last: Any, pickled: bytes, rank: int, world: int, first: int, path: str, patience: float) -> None:
    """Runs cases that come over the connection until the process is ended. The group has the ranks of the world from `first` on."""
    try:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if not dist.is_available() or not dist.is_gloo_available():
            raise RuntimeError("this build of torch has no gloo")
        torch.set_num_threads(1)
        fn = pickle.loads(pickled)
        TRAFFIC.last = last
        timeout = datetime.timedelta(seconds=patience)
        store = dist.FileStore(path, world)
        dist.init_process_group(register(), store=store, rank=rank, world_size=world, timeout=timeout)
        group: Any = dist.group.WORLD
        if first > 0:
            group = dist.new_group(list(range(first, world)), backend=register(), timeout=timeout)
        connection.send(("ready", None))
    except BaseException as e:
        connection.send(("raised", _text(e)))
        return
    while True:
        case, rows, keys, ranks = connection.recv()
        if rank < first:
            continue
        last.value = b""
        try:
            connection.send(("done", _run(fn, group, rank - first, ranks, case, rows, keys)))
        except BaseException as e:
            connection.send(("raised", _text(e)))


def _text(error: BaseException) -> str:
    """The last words of an error, and where it was raised outside of torch and this package."""
    first, *_ = re.sub(r"^\[[^\]]*\] *", "", str(error).strip()).splitlines() or [""]
    places = [f for f in traceback.extract_tb(error.__traceback__) if not {"torch", "redblue"} & set(f.filename.split(os.sep))]
    where = f" ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else ""
    doing = f", in its last call: {TRAFFIC.last.value.decode()}" if "imed out" in first and TRAFFIC.last is not None else ""
    return f"{type(error).__name__}: {first[:200]}{doing}{where}"


def _tensor(x: np.ndarray, case: Case) -> torch.Tensor:
    t = torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(torch.bfloat16 if case.bf16 else torch.float32)
    if case.strided:  # a slice of a larger tensor, rows before heads
        larger = torch.full((t.shape[0], t.shape[2], t.shape[1], 2 * t.shape[3]), float("nan"), dtype=t.dtype)
        view = larger[..., : t.shape[3]].transpose(1, 2)
        view.copy_(t)
        return view
    return t.clone()


def _run(fn: Any, group: Any, rank: int, ranks: int, case: Case, rows: np.ndarray, keys: np.ndarray) -> dict[str, Any]:
    whole = arrays_of(case, ranks)
    q, k, do = (_tensor(whole[name][:, :, of], case) for name, of in (("q", rows), ("k", keys), ("do", rows)))
    v = k if case.tied else _tensor(whole["v"][:, :, keys], case)
    dlse = torch.from_numpy(whole["dlse"][:, :, rows]).float()

    def options(asked: dict[str, Any]) -> dict[str, Any]:
        found = dict(asked)
        if "sinks" in found:
            found["sinks"] = torch.from_numpy(whole["sinks"]).float()
        if "cu_seqlens" in found:
            found["cu_seqlens"] = torch.tensor(found["cu_seqlens"], dtype=torch.int32)
        if "positions" in case.needs or case.ownership:
            found["positions"] = torch.from_numpy(rows), torch.from_numpy(keys)
        return found

    def once(asked: dict[str, Any]) -> dict[str, Any]:
        leaves = [x.detach().requires_grad_(case.backward) for x in ((q, k) if case.tied else (q, k, v))]
        found = fn(leaves[0], leaves[1], leaves[-1], group=group, **options(asked))
        if case.lse and not (isinstance(found, (tuple, list)) and len(found) == 2):
            raise WrongResult(f"the function claims lse and returns a {type(found).__name__}, not (o, lse)")
        o, lse = found if isinstance(found, (tuple, list)) and len(found) == 2 else (found, None)
        results = {"o": _checked("o", o, (*q.shape[:-1], v.shape[-1]), q.dtype)}
        if case.lse:
            results["lse"] = _checked("lse", lse, tuple(q.shape[:-1]), None)
        forward = TRAFFIC.counted()
        if case.between:  # as another layer of a model
            others = [x.detach().flip(2).requires_grad_() for x in (q, k, v)]
            again = fn(*others, group=group, **options(asked))
            (again[0] if isinstance(again, (tuple, list)) else again).sum().backward()
        if case.backward:
            if not o.requires_grad:
                raise WrongResult("o does not require a gradient, though q, k and v do: nothing would be learnt")
            TRAFFIC.begin(None if TRAFFIC.delays is None else rank)
            pairs = [(results["o"], do), *([(results["lse"], dlse)] if case.lse_gradient else [])]
            torch.autograd.backward([x for x, _ in pairs], [dx.to(x.dtype) for x, dx in pairs])
            for name, leaf in zip(("dq", "dk + dv") if case.tied else ("dq", "dk", "dv"), leaves):
                if leaf.grad is None:
                    raise WrongResult(f"{name} is None")
                results[name] = leaf.grad
        return {"results": results, "forward": forward, "backward": TRAFFIC.counted() if case.backward else None}

    for asked in case.earlier:
        once(asked)
    before = [x.clone() for x in (q, k, v)]
    bits = []
    for repeat in range(case.repeats):
        TRAFFIC.begin(17 * rank + repeat if case.delays else None)
        found = once(case.options)
        bits.append({name: hashlib.sha1(_array(x).tobytes()).digest() for name, x in found["results"].items()})
    found["results"] = {name: _array(x) for name, x in found["results"].items()}
    found["changed"] = [name for name, old, x in zip("qkv", before, (q, k, v)) if not torch.equal(old, x)]
    found["other bits"] = sorted({name for other in bits[1:] for name in other if other[name] != bits[0][name]})
    return found


def _checked(name: str, x: Any, shape: tuple, dtype: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor):
        raise WrongResult(f"{name} is a {type(x).__name__}, not a tensor")
    if tuple(x.shape) != shape:
        raise WrongResult(f"{name} has shape {tuple(x.shape)}; it should have {shape}")
    if dtype is not None and x.dtype != dtype:
        raise WrongResult(f"{name} has elements of type {x.dtype}; q has {dtype}")
    return x


def _array(x: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(x.detach().double().numpy())
