"""Command lines of fairseq and of this package as real processes, forked from one that has imported
the slow libraries, but not this package.

Importing those would take most of the time. --user-dir and the commands import the package as they
do for a user.
"""

import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile

ENTRY_POINTS = {
    **{f"fairseq-{name}": (f"fairseq_cli.{name.replace('-', '_')}", "cli_main")
       for name in ("train", "hydra-train", "validate", "generate", "eval-lm", "preprocess")},
    "agg-fairseq": ("agg_fairseq.cli.main", "main"),
}  # fmt: skip

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [*(module for module, _ in ENTRY_POINTS.values() if module.startswith("fairseq_cli")), "torch._dynamo",
     "torch.distributed.tensor.parallel", "torch.distributed.fsdp", "matplotlib.figure",
     "matplotlib.backends.backend_agg", "transformers.models.llama.modeling_llama",
     "transformers.models.gpt2.modeling_gpt2"]
)  # fmt: skip


def run_forked(command, *, cwd, env, timeout):
    """What `subprocess.run(command, capture_output=True, text=True)` returns; the command is one of
    `ENTRY_POINTS`."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [os.path.join(folder, name) for name in ("stdout", "stderr")]
        process = processes.Process(
            target=become, args=(command, str(cwd), dict(env), [os.devnull, *outputs])
        )
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        texts = []
        for path in outputs:
            with open(path, encoding="utf-8", errors="backslashreplace") as file:
                texts.append(file.read())
        return subprocess.CompletedProcess(command, process.exitcode, *texts)


def run_together(function, *calls):
    """The exit statuses of processes that call a function, each with its arguments; when the first
    one is gone, the others go."""
    workers = [processes.Process(target=function, args=arguments) for arguments in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        if workers[0].exitcode:
            worker.kill()
        worker.join(1800)
        worker.kill()
    return [worker.exitcode for worker in workers]


def become(command, cwd, env, streams):
    """Makes this process one that runs a command, or Python with a file or a module; streams are
    files for 0, 1, 2."""
    for descriptor, path in enumerate(streams):
        opened = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND if descriptor else os.O_RDONLY
        )
        os.dup2(opened, descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", 1), open(2, "w", 1)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    program, *sys.argv = command
    name = os.path.basename(program)
    if name in ENTRY_POINTS:
        sys.argv.insert(0, program)
        module, function = ENTRY_POINTS[name]
        sys.exit(getattr(importlib.import_module(module), function)())
    sys.executable = program
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
