"""Ring attention whose backward pass is written by hand: keys and values go round again, with their gradients."""

import torch
import torch.distributed as dist


def turn(group, *tensors):
    """These tensors of the rank before this one."""
    me, P = dist.get_rank(group), dist.get_world_size(group)
    sent = [t.contiguous() for t in tensors]
    got = [torch.empty_like(t) for t in sent] if P > 1 else sent
    works = [dist.isend(t, group=group, group_dst=(me + 1) % P, tag=i) for i, t in enumerate(sent) if P > 1]
    works += [dist.irecv(t, group=group, group_src=(me - 1) % P, tag=i) for i, t in enumerate(got) if P > 1]
    for work in works:
        work.wait()
    return got


def weights(q, k, step, group, causal):
    """exp(scores - lse) and lse for the keys of the rank `step` before this one; q [b, kv heads, group, n, d]."""
    S = q.shape[-1] ** -0.5 * q @ k.unsqueeze(2).mT
    if causal and step == 0:
        S = S.masked_fill(torch.ones(S.shape[-2:]).triu(1).bool(), -torch.inf)
    lse = S.logsumexp(-1, keepdim=True)
    return torch.exp(S - lse), lse


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, group, causal):
        q, P, me = q.unflatten(1, (k.shape[1], -1)), dist.get_world_size(group), dist.get_rank(group)
        o, lse, k_j, v_j = 0, torch.tensor(-torch.inf), k, v
        for step in range(P):
            if not causal or step <= me:
                p, of_block = weights(q, k_j, step, group, causal)
                both = torch.logaddexp(lse, of_block)
                o, lse = o * torch.exp(lse - both) + torch.exp(of_block - both) * (p @ v_j.unsqueeze(2)), both
            if step < P - 1:
                k_j, v_j = turn(group, k_j, v_j)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.group, ctx.causal = group, causal
        return o.flatten(1, 2), lse.flatten(1, 2).squeeze(-1)

    @staticmethod
    def backward(ctx, do, _):
        (q, k_j, v_j, o, lse), group, causal = ctx.saved_tensors, ctx.group, ctx.causal
        P, me, do = dist.get_world_size(group), dist.get_rank(group), do.unflatten(1, q.shape[1:3])
        dq, dk, dv, D = torch.zeros_like(q), torch.zeros_like(k_j), torch.zeros_like(v_j), (do * o).sum(-1, True)
        for step in range(P):
            if not causal or step <= me:
                p, of_block = weights(q, k_j, step, group, causal)
                p = p * torch.exp(of_block - lse)
                ds = q.shape[-1] ** -0.5 * p * (do @ v_j.unsqueeze(2).mT - D)
                dq, dk, dv = dq + ds @ k_j.unsqueeze(2), dk + (ds.mT @ q).sum(2), dv + (p.mT @ do).sum(2)
            if step < P - 1:
                k_j, v_j = turn(group, k_j, v_j)
            dk, dv = turn(group, dk, dv)  # after P turns they are at home
        return dq.flatten(1, 2), dk, dv, None, None


def ring_attention(q, k, v, *, group, causal=False):
    return Ring.apply(q, k, v, group, causal)
