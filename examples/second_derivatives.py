#!/usr/bin/env python3
"""Three uses of second derivatives of a small transformer, each with PyTorch's math path and with redblue: a gradient penalty,
a Hessian-vector product, and the residual of a differential equation. Compares the numbers, and prints time and memory.
Fails if the numbers part. Needs torch, on the CPU.

    python examples/second_derivatives.py --n 2048
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jvp

import redblue

WIDTH, HEADS, LAYERS = 64, 2, 2


class Block(nn.Module):
    """Attention of x to `seen`, which is x itself where there is nothing else, and a layer of each position alone. Its
    functions are smooth, as derivatives of derivatives want them."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, seen=None):
        q = self.q(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = self.kv(x if seen is None else seen).unflatten(-1, (2, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Transformer(nn.Module):
    """From `features` numbers of each position to one. With `sensors`, positions see those and not each other."""

    def __init__(self, features, sensors=0):
        super().__init__()
        self.first, self.last = nn.Linear(features, WIDTH), nn.Linear(WIDTH, 1)
        self.sensors = nn.Linear(sensors, WIDTH) if sensors else None
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x, seen=None):
        x = self.first(x)
        seen = None if seen is None else self.sensors(seen)
        for block in self.blocks:
            x = block(x, seen)
        return self.last(x)[..., 0]


def gradient_penalty(n):
    """The gradient of a critic's score in a sample should have length 1, as for Wasserstein GANs (Gulrajani et al. 2017, arXiv
    1704.00028). Training needs the gradient of that in the weights."""
    critic, samples = Transformer(16), torch.randn(1, n, 16)

    def step():
        x = samples.clone().requires_grad_()
        (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        return torch.autograd.grad((g.norm(dim=-1) - 1).square().mean(), list(critic.parameters()), materialize_grads=True)

    return step


def hessian_vector_product(n):
    """The Hessian of a loss in all weights, times a direction, is the gradient of what the loss's gradient has along it. The
    Hessian itself is never formed."""
    model, x, y = Transformer(16), torch.randn(1, n, 16), torch.randn(1, n)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    direction = {name: torch.randn_like(p) for name, p in weights.items()}

    def along(w):
        gradients = grad(lambda w: F.mse_loss(functional_call(model, w, (x,)), y))(w)
        return sum((gradients[name] * direction[name]).sum() for name in w)

    return lambda: list(grad(along)(weights).values())


def residual(n):
    """A transformer that sees u at 512 sensors at t = 0 learns u_t + u u_x = 0 (Burgers) at n points (t, x), as in Raissi et al.
    2019. Points see sensors and not each other: so one tangent, along (1, u), is the derivative at each point. Training needs the
    gradient of its square in the weights."""
    model, points, places = Transformer(2, sensors=2), torch.rand(1, n, 2), torch.rand(1, 512, 1)
    seen = torch.cat([places, torch.sin(2 * torch.pi * places)], -1)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(w):
        u = lambda points: functional_call(model, w, (points, seen))
        along = torch.stack([torch.ones(1, n), u(points)], -1)
        return jvp(u, (points,), (along,))[1].square().mean()

    return lambda: list(grad(loss)(weights).values())


TASKS = {"gradient penalty": gradient_penalty, "Hessian-vector product": hessian_vector_product, "residual": residual}


def megabytes(field):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field + ":"))
    return int(line.split()[1]) / 1024


def run(task, way, n, repeats, file):
    """One task one way, in a process of its own for its memory; the numbers go to the file."""
    torch.manual_seed(0)
    math_path = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with redblue.use() if way == "redblue" else math_path:
        TASKS[task](16)()  # what is loaded at first use is not memory of the task
        step = TASKS[task](n)
        before = megabytes("VmRSS")
        numbers = step()  # not timed: it makes plans
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    torch.save([x.detach() for x in numbers], file)
    print(json.dumps({"seconds": min(times), "megabytes": megabytes("VmHWM") - before}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2048, help="positions, or points")
    parser.add_argument("--repeats", type=int, default=3, help="runs that are timed; the fastest counts")
    parser.add_argument("--apart", type=float, default=1e-3, help="the most by which numbers may differ, in the largest of their tensor")
    parser.add_argument("--run", nargs=3, metavar=("TASK", "WAY", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.n < 1 or arguments.repeats < 1:
        parser.error(f"--n {arguments.n} --repeats {arguments.repeats}: give 1 or more of each")
    if arguments.run:
        task, way, file = arguments.run
        run(task, way, arguments.n, arguments.repeats, file)
        return 0

    print(f"n = {arguments.n}, {LAYERS} layers of {HEADS} heads, d = {WIDTH // HEADS}, fp32, {torch.get_num_threads()} threads")
    worst = 0.0
    for task in TASKS:
        found, numbers = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            for way in ("math", "redblue"):
                file = Path(folder) / way
                command = [sys.executable, __file__, "--n", str(arguments.n), "--repeats", str(arguments.repeats), "--run", task, way, str(file)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    print(done.stderr, file=sys.stderr)
                    return done.returncode
                found[way], numbers[way] = json.loads(done.stdout.splitlines()[-1]), torch.load(file)
        largest = max(x.abs().max() for x in numbers["math"])
        apart = max(float((a - b).abs().max() / largest) for a, b in zip(numbers["redblue"], numbers["math"], strict=True))
        worst = max(worst, apart)
        text = "  ".join(f"{way} {x['seconds']:.3f} s, {x['megabytes']:.0f} MB" for way, x in found.items())
        print(f"{task:23} {text}  apart {apart:.1e}", flush=True)
    if worst > arguments.apart:
        print(f"the numbers part: {worst:.1e} is more than {arguments.apart}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
