#!/usr/bin/env python3
"""Trains one small transformer twice on the text of docs/, character by character: with PyTorch's attention and with
redblue's. Both begin with the same weights and see the same batches; a step of one is followed by a step of the other, so
that both times are of the same minutes. Fails if the loss curves part. Needs torch, on the CPU.

    python examples/train_transformer.py --steps 200 --context 1024
"""

import argparse
import contextlib
import copy
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import redblue

TEXT = Path(__file__).resolve().parents[1] / "docs"


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, letters: int, context: int, width: int, heads: int, layers: int):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width), nn.Linear(width, letters))

    def forward(self, x):
        return self.blocks(self.letters(x) + self.places)


def step(model, optimiser, batch) -> float:
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--context", type=int, default=1024, help="characters that a prediction sees")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--width", type=int, default=128, help="features; heads have 32 each")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--apart", type=float, default=0.02, help="the most by which the two losses may differ")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps {arguments.steps}: give 1 or more")

    text = "".join(path.read_text(encoding="utf-8") for path in sorted(TEXT.glob("*.md")))
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([letters[letter] for letter in text])
    torch.manual_seed(0)
    first = Transformer(len(letters), arguments.context, arguments.width, arguments.width // 32, arguments.layers)
    models = {"SDPA": (first, contextlib.nullcontext), "redblue": (copy.deepcopy(first), redblue.use)}
    optimisers = {name: torch.optim.AdamW(model.parameters(), lr=1e-3) for name, (model, _) in models.items()}
    size = sum(p.numel() for p in first.parameters())
    print(f"{len(text)} characters, {len(letters)} kinds; {size} weights; {torch.get_num_threads()} threads")

    seconds = dict.fromkeys(models, 0.0)
    apart = 0.0
    for number in range(arguments.steps + 1):  # the first step is not timed: it makes plans
        starts = torch.randint(len(data) - arguments.context, (arguments.batch,))
        batch = torch.stack([data[s : s + arguments.context + 1] for s in starts.tolist()])
        losses = {}
        for name, (model, attention) in models.items():
            before = time.perf_counter()
            with attention():  # the two lines of redblue are this one and the import
                losses[name] = step(model, optimisers[name], batch)
            if number > 0:
                seconds[name] += time.perf_counter() - before
        apart = max(apart, abs(losses["SDPA"] - losses["redblue"]))
        if number % max(arguments.steps // 10, 1) == 0:
            print(f"step {number:4}  " + "  ".join(f"{name} {loss:.4f}" for name, loss in losses.items()), flush=True)
    for name, total in seconds.items():
        print(f"{name}: {total:.1f} s, {1e3 * total / arguments.steps:.1f} ms a step")
    print(f"SDPA's time over redblue's: {seconds['SDPA'] / seconds['redblue']:.3f}; the losses differ by {apart:.1e} at most")
    if apart > arguments.apart:
        print(f"the loss curves part: {apart:.1e} is more than {arguments.apart}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
