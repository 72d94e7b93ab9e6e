"""redblue.attention and its gradients."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import numpy as np

import redblue  # whose attribute `torch` is imported where it is first used

from ._call import calls, masks
from ._call import scales as int8
from ._call.arrays import is_tensor, require_shape
from ._call.calls import Call, call_for, key_as_given, remember
from ._call.families import family_of
from ._call.lse import has_float_bias, of_rows, require_keys, rescaled
from ._call.options import ARRAYS, NAMES, OPTIONS, Options
from ._call.request import Request
from ._call.settings import add_help, outputs, settings_of, sizes_of, tokens_first, unknown_options
from ._call.threads import default_threads
from ._core import run_known
from ._errors import InvalidProblem, Unsupported

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):  # for typing.get_type_hints
    from typing import Unpack


class Gradients(NamedTuple):
    """dq like q, dk like k, dv like v; dbias like bias and dsinks like sinks where they were asked for, or None."""

    dq: Any
    dk: Any
    dv: Any
    dbias: Any = None
    dsinks: Any = None


def request(q: Any, k: Any, v: Any, **options: Any) -> Request:
    return request_of(*family_of(q, k, v), **options)


def request_of(family: Any, q: Any, k: Any, v: Any, scales: Optional[int8.Scales] = None, **options: Any) -> Request:
    if not NAMES.issuperset(options):
        raise unknown_options("attention", [name for name in options if name not in OPTIONS], OPTIONS)
    bias, slopes, sinks = [None if (x := options.get(name)) is None else family.given(x, name) for name in ARRAYS]
    dropout, seed, tolerance = options.get("dropout"), options.get("seed"), options.get("tolerance")
    if dropout or seed is not None:
        require_seed(seed, dropout)
    if tolerance is not None:
        require_tolerance(tolerance, options.get("approximate"), options.get("compute"))
    of_arrays = {"bias": None if bias is None else tuple(bias.shape), "alibi": slopes is not None, "sinks": sinks is not None}
    settings = settings_of(options, of_arrays, q)
    of_core = None
    if scales is not None:
        int8.require_plain(tolerance)
        types = [family.type_of(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v"))]
        if types[1:] != ["int8", "int8"]:
            raise TypeError(f"k and v are of {types[1]} and {types[2]}, and have scales: these are for int8; leave {scales.names} out")
        of_core, keys = int8.scales_of(scales, k, settings.layout)
        x = sizes_of(tuple(q.shape), tuple(k.shape), tuple(v.shape), settings.layout)
        queries = x.n_q * x.heads // max(1, x.kv_heads)
        compute = int8.arithmetic(settings.compute, types[0], settings.approximate is None and all(map(family.is_dense, (q, k, v))), queries)
        settings = settings._replace(keys_per_scale=keys, compute=compute)
    return Request(family, q, k, v, bias, slopes, sinks, settings, int(seed or 0), tolerance, of_core)


def require_provable(compute: Optional[str]) -> None:
    if compute == "bf16":
        raise Unsupported('compute = "bf16": certificates are for "f32" and "f64"; nothing is proved of products of bf16')


def require_tolerance(tolerance: Any, approximate: Optional[str], compute: Optional[str]) -> None:
    if not isinstance(tolerance, numbers.Real) or not 0 < float(tolerance) < 1:
        raise InvalidProblem(f"tolerance = {tolerance}: give a number above 0 and below 1, as in 1e-3")
    if approximate is not None:
        raise InvalidProblem("tolerance and approximate: give one of them; tolerance finds the degree")
    require_provable(compute)


def require_seed(seed: Any, dropout: Optional[float]) -> None:
    """`dropout` is None where it is not given. A dropout of 0 takes a seed: callers turn dropout off by it."""
    if seed is not None and dropout is None:
        raise InvalidProblem(f"seed = {seed!r} is for dropout: give that, too")
    if seed is None and not (isinstance(dropout, numbers.Real) and 0 < dropout < 1):
        return  # the library says what is wrong with it
    if seed is None:
        raise InvalidProblem(f"dropout = {dropout} and no seed: give one, a whole number from 0 to 2^53")
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number <= 2**53:
        raise InvalidProblem(f"seed = {seed!r}: give a whole number from 0 to 2^53")


def chosen(r: Request, call: Call, arrays: tuple) -> tuple[Any, str]:
    """The plan that is run, of exact attention or, under a tolerance, of a polynomial, and why."""
    if call.plan is None:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in (("q", r.q), ("k", r.k), ("v", r.v)))
        raise InvalidProblem(f"{shapes}: a size is 0, so that nothing is planned")
    if r.tolerance is None:
        return call.plan, ""
    found, why = call.plan.within(arrays, call.tokens_first, call.wanted, r.tolerance)
    return (call.plan if found is None else found), why


def attention(
    q: Any, k: Any, v: Any, *, out: Any = None, return_lse: bool = False, k_scale: Any = None, v_scale: Any = None,
    keys_per_scale: Optional[int] = None, comm: Any = None, ranks: Any = None, **options: Unpack[Options],
) -> Any:  # fmt: skip
    """Attention, softmax(scale q k^T) v, for each batch and head.

    q [batch, heads, n_q, d], k [batch, kv_heads, n_k, d], v [batch, kv_heads, n_k, d_v]: arrays of NumPy (bfloat16 is
    that of ml_dtypes), tensors of PyTorch, or arrays with DLPack or the buffer protocol, all of one kind and type:
    float64, float32, float16 or bfloat16, with any strides. Sizes may be missing in front: [heads, n, d], [n, d].
    heads is a multiple of kv_heads. Tensors that require gradients give a differentiable result (redblue.torch).

    Options, all by name. docs/semantics.md says in which order they act, docs/masks.md what each mask shows.

    layout          "bhsd" (or "bhnd"), or "bshd" ("bnhd"): [batch, sequence, heads, features], [sequence, heads, features]; also
                    without batch and heads: "hsd", "shd", "sd"
    causal          query i sees the keys j <= i + offset
    alignment       the offset: "bottom-right" (n_k - n_q: the last query sees all keys), "top-left" (0), or a number
    window          (left, right): query i sees the keys i + offset - left to i + offset + right; -1: no edge
    prefix          the first keys, which neither causal nor the window's right edge hides
    dilation        above 1: of these keys only those at distances that are multiples of it, and the window counts such
                    steps; each residue of queries and keys is taken as a sequence of its own. With alibi_slopes, dropout
                    or another pattern: redblue.patterns.window
    scale           default 1 / sqrt(d)
    bias            added to scores: broadcasts to [batch, heads, n_q, n_k]; of bool: True keeps. One that is a mask with
                    a rule runs as that (docs/python.md, Masks in a bias)
    alibi_slopes    [heads] or [batch, heads]: scores less slope |i + offset - j|
    softcap         c > 0: scores become c tanh(score / c), before bias and mask
    sinks           [heads]: one more score in each row, whose value is 0
    dropout, seed   the share of weights that become 0; which ones depends on the seed (0 to 2^53) alone
    cu_seqlens_q, cu_seqlens_k   packed sequences: where each begins, from 0 to n_q (n_k), the same in all batches
    seqused_q, seqused_k         queries and keys in use, for each batch of padded ones, or for each packed sequence
    pattern         of redblue.patterns: one, or one for each head, or for each head of each batch
    order           of a pattern's queries and keys: "natural", "rcm", "jaccard", "in-place"; default: what the planner finds best
    approximate     "2:0.8" (a polynomial of degree 2 for scores up to 0.8; "2:0.8,taylor", "2:0.8,chebyshev": with the
                    coefficients of these series in place of the nearest ones), "linear", "performer:256,seed=7", ...
    tolerance       exact attention, or a polynomial, where that takes less time (under M or memory: moves fewer words),
                    whose output in exact arithmetic is proved to be within this many max|v| of exact attention for the norms
                    of these arrays; roundings come on top (redblue.certify says how many)
    compute         type of arithmetic: "f32", "f64", "bf16" (products of bf16, sums in fp32). Default: f64 for float64,
                    bf16 for exact attention of bfloat16 (gradients: without modifiers), unless the plan is of least
                    time and this machine multiplies fp32 faster, else f32
    M, memory       words or bytes ("64KiB", too) of fast memory: the plan that moves the fewest words. Default: the plan of least time
                    on this machine, which is measured once (`python -m redblue doctor` does it well, in a few seconds)
    schedule        this one only, by name
    max_workspace   the most bytes that a run may take beside its arrays
    threads         at most this many; default: REDBLUE_THREADS, or torch.get_num_threads() where torch is loaded, or
                    OMP_NUM_THREADS, or one for each CPU. The result of a plan is the same to the last bit for any number
    out             where the result goes: an array of its shape, of any type of floats, to which it is rounded once
    k_scale, v_scale   k and v are of int8, and stand for their words times these scales, fp32: [kv_heads] or [batch, kv_heads],
                    or a number. Without gradients; under M, too, the bytes that move are fewest
    keys_per_scale  how many keys of a head share a scale: k_scale and v_scale are [batch, kv_heads, ceil(n_k / keys_per_scale)]
    return_lse      return (o, lse): lse [batch, heads, n_q], the logarithms of the row sums of exp(score), float64 for
                    float64, else float32
    comm, ranks     q, k and v are the rows of one rank of several: redblue.distributed.attention says more

    Returns o [batch, heads, n_q, d_v] (in the layout of q), of the kind and type of q. A query that sees no key, or has
    none to see (n_k = 0), has o = 0, lse = -inf. Raises InvalidProblem (a ValueError), Unsupported (a NotImplementedError),
    CapacityError, NotEnoughMemory, or TypeError for arrays that it cannot read. redblue.explain, with the same arguments,
    says what runs.

    Source: Vaswani et al. 2017, arXiv 1706.03762; schedules: docs/schedules.md.
    """
    scales = None
    if not (k_scale is None and v_scale is None and keys_per_scale is None):
        scales = int8.given(k_scale, v_scale, keys_per_scale)
    if comm is not None or ranks is not None:
        return _over_ranks(q, k, v, out, return_lse, scales, comm, ranks, options)
    if type(q) is not np.ndarray and is_tensor(q):
        if scales is not None:
            return redblue.torch.int8_of_tensors(q, k, v, out, return_lse, scales, options)
        return redblue.torch.of_tensors(q, k, v, out, return_lse, options)
    return forward(q, k, v, out, return_lse, options, scales)


add_help(attention, OPTIONS)


def _over_ranks(q: Any, k: Any, v: Any, out: Any, return_lse: bool, scales: Any, comm: Any, ranks: Any, options: Any) -> Any:
    if comm is None:
        raise InvalidProblem("ranks: give comm, too, a communicator of mpi4py or a process group of torch")
    if out is not None:
        raise Unsupported("out: attention over ranks returns a new array; leave it out")
    if scales is not None:
        raise Unsupported("k_scale, v_scale: attention over ranks takes keys and values of floats; multiply int8 by its scales first")
    return redblue.distributed.attention(q, k, v, comm=comm, ranks=ranks, return_lse=return_lse, **options)


def without_products(r: Request) -> Request:
    """The same problem for scale = 0: q and k of zeros, and scale = 1. The library makes the gradient of a bias from that
    of the products, which is 0 here."""
    return r._replace(q=r.family.zeros(r.q), k=r.family.zeros(r.k), settings=r.settings._replace(scale=1.0))


def refuse_gradients(why: str, *arrays: Any) -> None:
    """Refuses tensors that require gradients: they would lose them without a word, for this call records none."""
    if any(is_tensor(x) and x.requires_grad for x in arrays) and redblue.torch.torch.is_grad_enabled():
        raise Unsupported(why)


def require_exact(approximate: Optional[str], tolerance: Optional[float] = None, wanted: str = "return_lse") -> None:
    """For return_lse, and dlse: approximations write no lse."""
    for name, value in (("approximate", approximate), ("tolerance", tolerance)):
        if value is not None:
            raise InvalidProblem(f"{wanted} with {name} = {value}: approximations have no lse; leave {wanted} or {name} out")


def forward(
    q: Any, k: Any, v: Any, out: Any, return_lse: bool, options: Options, scales: Optional[int8.Scales] = None
) -> Any:
    """attention, of which torch records nothing."""
    into = () if out is None else (out,)
    if scales is None:
        found: Any = run_known(calls._as_given, (q, k, v, return_lse), options, default_threads(), into)
        if found is not None:
            return found
    family, *own = family_of(q, k, v)
    if scales is None and own[0] is not q:  # of a library whose arrays are read as NumPy's
        found = run_known(calls._as_given, (*own, return_lse), options, default_threads(), into)
        if found is not None:
            first, *others = found if return_lse else (found,)
            first = family.finished(first) if out is None else out
            return (first, *map(family.finished, others)) if return_lse else first
    key = None if scales is not None else key_as_given((*own, return_lse), options)
    r = request_of(family, own[0], own[1], own[2], scales, **options)
    if return_lse:
        require_exact(r.settings.approximate, r.tolerance)
    if r.bias is not None:
        r, _ = masks.recognised("forward", r, options["bias"])
    call = call_for("forward", family, r.q, r.k, r.v, r.settings, (return_lse,))
    if r.seed == 0 and r.tolerance is None and _is_decided_by_sizes(r, options):
        alike = call.o_shape == tuple(r.q.shape)
        of_o = ("O", "Q", call.o_shape, call.type, alike)
        remember(key, call, family, (of_o, ("lse", "Q", call.lse_shape, call.lse_type, False)) if return_lse else (of_o,))
    q, k, v = r.q, r.k, r.v
    o = family.empty(q, call.o_shape, call.type, "q") if out is None else family.written(out, call.o_shape)
    lse = family.empty(q, call.lse_shape, call.lse_type) if return_lse else None
    if call.plan is None:
        require_heads(r, *(1, 1, *call.lse_shape)[-3:-1])
        o[...] = 0
        if return_lse:
            lse = _lse_without_values(r, call, lse, options, scales)
    else:
        arrays = r.arrays(o, lse)
        plan = call.plan if r.tolerance is None else chosen(r, call, arrays)[0]
        family.run(plan, arrays, call.tokens_first, r.seed)
        if family.refuses_nan and not (r.bias is None and r.slopes is None and r.sinks is None):
            _refuse_nan(r, o, call.wanted.compute)
    o = family.finished(o) if out is None else out
    return (o, family.finished(lse)) if return_lse else o


def _is_decided_by_sizes(r: Request, options: Options) -> bool:
    """Does such a call always run as this one? A bias may be read for a mask, and numbers of modifiers be refused."""
    if options.get("bias") is None and r.slopes is None and r.sinks is None:
        return True
    return not r.family.refuses_nan and masks.is_small(r.q.shape, r.k.shape)


def _refuse_nan(r: Request, o: Any, compute: str) -> None:
    """Raises where modifiers have made rows of the output NaN. A row is NaN in all features, so that one tells."""
    if np.isnan(o[..., 0]).any():
        refuse_numbers(r, compute)


def refuse_numbers(r: Request, compute: str) -> None:
    """Raises where a modifier has a number that makes rows of the output NaN in this arithmetic."""
    for name, x, bad in (("bias", r.bias, _nan_or_infinity), ("alibi_slopes", r.slopes, _not_finite), ("sinks", r.sinks, _nan_or_infinity)):
        if x is None or x.dtype == bool:
            continue
        with np.errstate(over="ignore"):  # numbers that the arithmetic takes for infinite, too
            found = np.argwhere(bad(x if compute == "f64" else x.astype(np.float32)))
        if len(found) > 0:
            at = tuple(found[0])
            raise InvalidProblem(f"{name} has {x[at]} at {[int(i) for i in at]}, and all rows that take it would be NaN")


def _nan_or_infinity(x: Any) -> Any:
    return np.isnan(x) | (x == math.inf)


def _not_finite(x: Any) -> Any:
    return ~np.isfinite(x)


def _lse_without_values(r: Request, call: Call, lse: Any, options: Options, scales: Optional[int8.Scales]) -> Any:
    """The lse of a call that has no output: v has no features, or there are no keys or no queries."""
    if 0 not in r.q.shape and 0 not in r.k.shape:
        one_column = r.family.zeros(r.k)[..., :1]
        return forward(r.q, r.k, one_column, None, True, options, scales)[1]
    lse[...] = -math.inf if r.sinks is None else of_rows(r.sinks, len(call.lse_shape))
    return lse


def require_heads(r: Request, batch: int, heads: int) -> None:
    """Are slopes and sinks numbers of heads? For a call that does not reach the library, which asks the same."""
    for name, x in (("alibi_slopes", r.slopes), ("sinks", r.sinks)):
        shape = () if x is None else tuple(x.shape)
        if x is not None and (shape[:2] not in ((heads,), (1, heads), (batch, heads)) or shape[2:] not in ((), (1, 1))):
            raise InvalidProblem(f"{name} is {list(shape)}: give [heads] or [batch, heads], here [{heads}] or [{batch}, {heads}]")


def gradients_request(
    q: Any, k: Any, v: Any, bias_gradient: bool, sinks_gradient: bool, options: Options, counted: bool = True
) -> tuple[Request, str]:
    """What a backward pass is asked for, and which mask its bias is."""
    if options.get("tolerance") is not None:
        raise InvalidProblem("tolerance is for attention: nothing is proved of gradients")
    r = request(q, k, v, **options)
    if bias_gradient and r.bias is None or sinks_gradient and r.sinks is None:
        raise InvalidProblem("bias_gradient and sinks_gradient: there is no such array; give bias or sinks")
    if not bias_gradient:
        return (r, "") if r.bias is None else masks.recognised("backward", r, options["bias"], counted=counted)
    if r.family.type_of(r.bias, "bias") == "bool":
        raise InvalidProblem("bias_gradient: bias is of bool and has no gradient; leave bias_gradient out, or give floats")
    return (without_products(r) if r.settings.scale == 0 else r), ""


def seen(r: Request, q: Any, k: Any, v: Any, o: Any, lse: Any, options: Options) -> tuple[Any, Any]:
    """o and lse as given, or those of a forward pass where what follows must see lse: under a bias of floats."""
    if lse is None and has_float_bias(r):
        return forward(q, k, v, None, True, {**options, "schedule": None})  # type: ignore[no-any-return]
    return o, lse


def attention_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any = None,
    lse: Any = None,
    *,
    bias_gradient: bool = False,
    sinks_gradient: bool = False,
    dlse: Any = None,
    out: Optional[Gradients] = None,
    **options: Unpack[Options],
) -> Gradients:
    """The gradients of SUM do o + SUM dlse lse with respect to q, k and v, and bias and sinks if asked for.

    do has the shape of o; o and lse are those that `attention(..., return_lse=True)` gave for the same arrays and
    options. Without both of them a forward pass runs first. Options are those of `attention` but `tolerance`; `compute`
    is bf16 for bfloat16 without bias, ALiBi, softcap and dropout only, and by default where o and lse are given, too, and
    there are no sinks. `out`: Gradients of arrays of their own to write to, as `out` of attention. With
    fewer heads of k and v than of q, dk and dv are sums over the heads of a group.

    bias_gradient   the gradient of bias, too, which must be given and of floats: dbias has its shape, and is summed over what
                    shares the bias. Without it dbias is None
    sinks_gradient  the gradient of sinks, too, which must be given: dsinks has their shape. Without it dsinks is None
    dlse            the gradient of lse, with its shape; None: lse has none. What approximates attention has no lse

    Returns Gradients(dq, dk, dv, dbias, dsinks) of the kinds, shapes and types of their arrays. Gradients of a plan
    have the same bits for any number of threads. Raises what `attention` raises.

    Source: Dao et al. 2022, arXiv 2205.14135, appendix B; docs/algorithms/two-pass.md.
    """
    key = None
    plain = out is None and dlse is None and bias_gradient is False and sinks_gradient is False
    if plain and o is not None and lse is not None:
        all_ = (q, k, v, False, do, o, lse)
        found: Any = run_known(calls._as_given, all_, options, default_threads(), ())
        if found is not None:
            return Gradients(*found)
        key = key_as_given(all_, options)
    r, _ = gradients_request(q, k, v, bias_gradient, sinks_gradient, options)
    if (o is None) != (lse is None) and r.settings.approximate is None:
        raise InvalidProblem("o and lse: give both, as attention(..., return_lse=True) returns them, or neither")
    if r.settings.approximate is None:
        o, lse = seen(r, q, k, v, o, lse, options)
    family = r.family
    do, o, lse, dlse = (
        None if x is None else family.given(x, name) for x, name in ((do, "do"), (o, "o"), (lse, "lse"), (dlse, "dlse"))
    )
    if dlse is not None:
        require_exact(r.settings.approximate, wanted="dlse")
        require_keys(r.k.shape[-3 if tokens_first(r.settings.layout) else -2], r.sinks)
    wants = o is not None, bias_gradient, sinks_gradient, dlse is not None
    call = call_for("backward", family, r.q, r.k, r.v, r.settings, wants, do)
    if dlse is not None:
        require_shape("dlse", dlse, call.lse_shape)
    if lse is not None and call.plan is not None and r.bias is not None:
        require_shape("do", do, call.o_shape)
        require_shape("lse", lse, call.lse_shape)
        of_lse = None if dlse is None else dlse.reshape(call.lse_shape)
        do, dlse = rescaled(r, call, do.reshape(call.o_shape), of_lse, lse.reshape(call.lse_shape))
    given = do
    if call.wanted.compute == "bf16":  # not its strides choose the arithmetic: autograd's may be any
        do = family.dense(do)
    if do is given and r.seed == 0 and r.bias is None and r.slopes is None and r.sinks is None and options.get("bias") is None:
        likes = (("dQ", "Q", r.q), ("dK", "K", r.k), ("dV", "V", r.v))
        remember(key, call, family, tuple((name, like, tuple(x.shape), family.type_of(x, like), True) for name, like, x in likes))

    def like(x: Any) -> Any:
        return family.empty(x, tuple(x.shape), family.type_of(x, "an input"))

    wanted = Gradients(r.q, r.k, r.v, r.bias if bias_gradient else None, r.sinks if sinks_gradient else None)
    if out is None:
        gradients = Gradients(*(None if x is None else like(x) for x in wanted))
    else:
        named = zip(outputs("out", out, Gradients._fields), wanted, Gradients._fields)
        gradients = Gradients(*(None if x is None else family.written(g, x.shape, f"out.{name}") for g, x, name in named))
    if call.plan is None:
        require_heads(r, *(1, 1, *call.lse_shape)[-3:-1])
        for name, x, shape in (("do", do, call.o_shape), ("o", o, call.o_shape), ("lse", lse, call.lse_shape)):
            if x is not None:
                require_shape(name, x, shape)
        for g in gradients:
            if g is not None:
                g[...] = 0
    else:
        others = {} if dlse is None else {"dlse": dlse}
        family.run(call.plan, r.arrays(o, lse, do, *gradients, **others), call.tokens_first, r.seed)
    return Gradients(*(None if g is None else family.finished(g) for g in gradients)) if out is None else out

