"""The training steps of main.rs beside this file, in PyTorch on two threads.

Usage: python pytorch.py    (needs torch, a CPU build is enough)
"""

import time

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WARM_UP_STEPS = 40, 10
torch.set_num_threads(2)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (y.view(shape).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=256, length=128, layers=4, width=128, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.ln_f(self.h(self.wte(tokens) + self.wpe.weight))
        return F.linear(x, self.wte.weight)


def run(name, model, optimizer, loss_of, count, unit):
    seconds = []
    for step in range(WARM_UP_STEPS + STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()
        if step >= WARM_UP_STEPS:
            seconds.append(time.perf_counter() - start)
    median = sorted(seconds)[STEPS // 2]
    print(f"PyTorch {name}: median {median * 1e3:.1f} ms, {count / median:.0f} {unit}/s")


def main():
    gpt = Gpt()
    tokens = torch.randint(0, 256, (8, 129))

    def gpt_loss():
        return F.cross_entropy(gpt(tokens[:, :-1]).reshape(-1, 256), tokens[:, 1:].reshape(-1))

    run("gpt", gpt, torch.optim.AdamW(gpt.parameters(), 3e-4), gpt_loss, 8 * 128, "tokens")
    cnn = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10))
    x, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    run("cnn", cnn, torch.optim.Adam(cnn.parameters(), 1e-3),
        lambda: F.cross_entropy(cnn(x), labels), 64, "images")


if __name__ == "__main__":
    main()
