"""The steps of bench/training_step.cpp by PyTorch's DistributedDataParallel on Gloo, for comparing.

usage: pytorch_ddp.py RANKS WIDTH DEPTH BATCH STEPS

Starts its own ranks on this machine, or is one of those that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT speak of.
Rank 0 prints one line of JSON. One thread a rank.
"""
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import json
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(rank, ranks, width, depth, batch, steps):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(batch, width), torch.randn(batch, width)
    times = []
    for _ in range(steps + 3):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    if rank == 0:
        times = times[3:]
        print(json.dumps({"median_ms": statistics.median(times), "least_ms": min(times)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:6]]
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), *arguments)
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo")
        mp.spawn(train, args=tuple(arguments), nprocs=arguments[0])
