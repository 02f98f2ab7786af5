"""The tokens of an update, split over processes; and which machines a training runs on."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agg_fairseq.errors import UserError
from scripts.training.cluster import Batches, Cluster, cluster_of, processes_of, split


@pytest.mark.parametrize(
    ("tokens", "processes", "largest", "block", "expected"),
    [
        (32768, 1, 4096, 1024, (4096, 8)),  # as written
        (32768, 4, 4096, 1024, (4096, 2)),
        (32768, 8, 4096, 1024, (4096, 1)),
        (32768, 16, 4096, 1024, (2048, 1)),  # smaller batches
        (25000, 8, 3125, 1, (3125, 1)),
        (25000, 5, 3125, 1, (2500, 2)),
        (8192, 3, 8192, 1, (2731, 1)),  # 8,193
        (8192, 3, 8192, 1024, (3072, 1)),  # 9,216: nearer than 6,144
        (8192, 16, 8192, 1024, (1024, 1)),  # a block each, at least
        (65536, 6, 8192, 1, (3641, 3)),  # 65,538: nearer than 6 x 5,461 x 2
        (32768, 3, 4096, 1024, (2048, 5)),  # 30,720: nearer than 3 x 4,096 x 3 = 36,864
        (600, 1, 1000, 1, (600, 1)),  # fewer than one batch could hold
    ],
)
def test_split(tokens, processes, largest, block, expected):
    assert split(tokens, processes, largest, block) == Batches(processes, *expected)


@settings(deadline=None)
@given(
    tokens=st.integers(1, 10**5), processes=st.integers(1, 64), largest=st.integers(1, 10**4), block=st.integers(1, 64)
)
def test_split_is_as_near_as_the_batches_it_may_choose_from(tokens, processes, largest, block):
    largest = max(largest, block)
    batches = split(tokens, processes, largest, block)
    fewest = max(1, -(-tokens // (processes * largest)))
    assert batches.max_tokens % block == 0 and 0 < batches.max_tokens <= largest
    assert fewest <= batches.update_freq <= 2 * fewest
    possible = (
        processes * block * blocks * number
        for number in range(fewest, 2 * fewest + 1)
        for blocks in range(1, largest // block + 1)
    )
    assert abs(batches.tokens - tokens) == min(abs(one - tokens) for one in possible)


def test_machines_of_the_options():
    assert cluster_of(None, None, None, {}) == Cluster()
    assert cluster_of(3, 2, "host:29500", {"SLURM_NNODES": "7"}) == Cluster(3, 2, "host:29500")
    for options in ((2, None, None), (2, 2, "host:1"), (2, -1, "host:1"), (2, 0, "host"), (None, 0, "host:1")):
        with pytest.raises(UserError, match="expected all three"):
            cluster_of(*options, {})


def test_machines_of_slurm(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames node[07-08]" ] && printf "node07\\nnode08\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    job = {"SLURM_NNODES": "4", "SLURM_NTASKS": "32", "SLURM_JOB_ID": "40001", "SLURM_JOB_NODELIST": "node[05-08]"}
    step = job | {
        "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "node[07-08]",
        "SLURM_NODEID": "1",
    }  # fmt: skip
    assert cluster_of(None, None, None, step) == Cluster(2, 1, "node07:20001")
    assert cluster_of(None, None, None, step | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}) == Cluster()
    with pytest.raises(UserError, match="found no machine by scontrol show hostnames other"):
        cluster_of(None, None, None, step | {"SLURM_STEP_NODELIST": "other"})
    for nodes in ("1", "2"):
        with pytest.raises(UserError, match=f"found 16 tasks of srun on {nodes} machine"):
            cluster_of(None, None, None, step | {"SLURM_STEP_NUM_NODES": nodes, "SLURM_STEP_NUM_TASKS": "16"})


@pytest.mark.parametrize("shell", [{"SLURM_NODEID": "0"}, {}])  # of sbatch; of salloc
def test_slurm_without_srun(shell):
    job = {"SLURM_NNODES": "4", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node[05-08]", **shell}
    with pytest.raises(UserError, match="found a Slurm job of 4 machines.*expected it started by srun"):
        cluster_of(None, None, None, job)
    assert cluster_of(None, None, None, job | {"SLURM_NNODES": "1", "SLURM_NTASKS": "8"}) == Cluster()


@pytest.mark.parametrize(
    ("visible", "wanted", "on_cpu", "expected"),
    [(4, None, False, 4), (4, 2, False, 2), (0, None, True, 1), (4, None, True, 1), (0, 3, True, 3)],
)
def test_processes(visible, wanted, on_cpu, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert processes_of(wanted, on_cpu) == expected


@pytest.mark.parametrize(
    ("visible", "wanted", "on_cpu", "message"),
    [(0, None, False, "size=tiny"), (2, 3, False, "found 3, and 2 GPUs"), (2, 0, True, "expected at least 1")],
)
def test_too_few_processors(visible, wanted, on_cpu, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    with pytest.raises(UserError, match=message):
        processes_of(wanted, on_cpu)
