#!/usr/bin/env bash
# torch's DTensor starts anew on each device in cumsum(-1) along a sharded dimension, and not in
# cumsum(1) of the same matrix.
#
# Expected: "provides single-device like abstraction to program with multi-device" tensors
#   (documentation of DTensor): the same result as on one device. dim=-1 is the last dimension.
# Seen (torch 2.13.0): cumsum, cumprod and logcumsumexp along a negative dimension do not notice
#   that it is the one that is sharded, and run on each shard by itself. With a positive dimension,
#   the shards are gathered first, and the result is right. Nothing warns.
# Why it matters: with a sequence that is sharded over devices, attention_mask.cumsum(-1) - 1, by
#   which models number their tokens, starts at 0 on each device; (tokens == EOS).cumsum(-1), by
#   which packed documents are kept apart, gives documents of two devices the same number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 numpy==2.4.1
cat > "$folder/cumulate.py" <<'PYTHON'
import sys
import tempfile

import torch
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

DEVICES, EOS = 2, 0
tokens = torch.tensor([[5, 7, EOS, 4, 8, 6, EOS, 9]])
numbers = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def run(rank, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=DEVICES
    )
    mesh = init_device_mesh("cpu", (DEVICES,))

    def cumulated(tensor, name, dim):
        tensor = distribute_tensor(tensor, mesh, [Shard(1)])
        return getattr(tensor, name)(dim).full_tensor()

    differences = {
        (name, dim): (cumulated(numbers, name, dim) - getattr(numbers, name)(dim)).abs().max()
        for name in ("cumsum", "cumprod", "logcumsumexp")
        for dim in (1, -1)
    }
    positions = cumulated(torch.ones_like(tokens), "cumsum", -1) - 1
    documents = cumulated((tokens == EOS).long(), "cumsum", -1)
    torch.distributed.destroy_process_group()
    if rank:
        return

    print(f"torch {torch.__version__}: largest difference between {DEVICES} devices and one")
    for (name, dim), difference in differences.items():
        print(f"  {name + f'({dim})':18} {difference:.3f}")
    print("  expected: 0 everywhere")
    for title, found, expected in (
        ("positions of tokens", positions, range(8)),
        ("numbers of documents", documents, (tokens == EOS).cumsum(-1)[0].tolist()),
    ):
        print(f"{title:21}:", *found[0].tolist(), "  expected:", *expected)
    if (
        any((difference > 0.01) != (dim == -1) for (_, dim), difference in differences.items())
        or positions[0].tolist() != [0, 1, 2, 3, 0, 1, 2, 3]
        or documents[0].tolist() != [0, 0, 1, 1, 0, 0, 1, 1]
    ):
        sys.exit("The behavior has changed.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, args=(f"{folder}/store",), nprocs=DEVICES)
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/cumulate.py"
