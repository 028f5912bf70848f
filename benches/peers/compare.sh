#!/usr/bin/env bash
# Plimsoll and PyTorch in turn, three times, so that both see the same machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
for _ in 1 2 3; do
    cargo bench --quiet --bench peers
    python3 benches/peers/pytorch.py
done
