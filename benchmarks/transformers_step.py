"""A step of transformers' Trainer with its own loss beside the same step with `GatedLoss`, and with other packages.

    python -m benchmarks.transformers_step [--device cpu|cuda] [--processor-time] [--json FILE]

Each variant is a GPT-2 of transformers with random weights, on random text under Zipf's law: `Trainer.training_step`
(forward and backward pass), clipping, AdamW and the callbacks of an update. `linear_cross_entropy` of torch,
`liger-kernel` and `cut-cross-entropy` (`pip install -e '.[peers]'`) compute plain likelihood. In each of `--repeats`
rounds, every variant trains one update; times are medians over the rounds, and ratios are medians of the ratios within
a round. The peak is what one training step allocates beyond what is in use before it, in a process of its own for each
variant. `--processor-time` measures the time that the process computes, in place of wall-clock time, on a busy machine.
"""

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch
from torch import Tensor

from .criterion import PEERS, Loss, peer_loss, why_not
from .measuring import RETURN_FREED_MEMORY, Step, devices, interleaved, machine, peak_mib, row, run_alone, zipf

SIZES = {  # device: layers, dimension, heads, steps of a sequence, sequences
    "cpu": (4, 256, 4, 256, 4),
    "cuda": (12, 768, 12, 1024, 16),
}
VARIANTS: dict[str, dict[str, Any] | None] = {
    "transformers": None,
    "mle": {"method": "mle"},
    "agg": {"method": "agg", "agg_rare_fraction": 0.2, "agg_window": 8},
    "agps": {"method": "agps"},
}
VOCABULARY = 50_257


def main() -> None:
    """Trains all variants side by side and prints a table for each device."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument("--repeats", type=int, default=9, help="timed rounds (default: 9)")
    made.add_argument("--vocabulary", type=int, default=VOCABULARY, metavar="V", help=f"default: {VOCABULARY}")
    made.add_argument("--processor-time", action="store_true", help="in place of wall-clock time, on a CPU")
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    made.add_argument("--peak", metavar="VARIANT", help=argparse.SUPPRESS)  # a process that measures memory
    options = made.parse_args()
    if options.peak:
        with tempfile.TemporaryDirectory() as folder:
            print(round(peak(options.peak, options.device, options.vocabulary, folder)))
        return
    results = []
    for device in devices(options.device):
        with tempfile.TemporaryDirectory() as folder:
            reasons = {peer: why_not(peer, device, "float32" if device == "cpu" else "bfloat16") for peer in PEERS}
            names = (*VARIANTS, *(peer for peer in PEERS if reasons[peer] is None))
            trained = {name: make_trainer(name, device, options.vocabulary, folder) for name in names}
            updates = {name: update_of(model) for name, model in trained.items()}
            if options.processor_time:
                times = interleaved_processor_time(updates, options.repeats)
            else:
                times = interleaved(updates, options.repeats, device)
        layers, dimension, heads, steps, sequences = SIZES[device]
        print(
            f"\n{machine(device)}, V = {options.vocabulary:,}, {layers} layers of {dimension}, "
            f"{sequences} × {steps} tokens, median of {options.repeats}\n"
        )
        print("| loss | ms per update | × transformers | peak MiB |\n|:--|--:|--:|--:|")
        for name, (seconds, ratio) in times.items():
            arguments = ("--peak", name, "--device", device, "--vocabulary", str(options.vocabulary))
            mib = run_alone("benchmarks.transformers_step", *arguments, environment=RETURN_FREED_MEMORY)
            print(row((name, f"{1000 * seconds:,.0f}", f"{ratio:.3f}", f"{mib:,}")), flush=True)
            results.append({"loss": name, "device": device, "ms": 1000 * seconds, "time_ratio": ratio, "peak_mib": mib})
        for name, reason in reasons.items():
            if reason is not None:
                print(row((name, reason, "", "")))
    if options.json:
        from agg_fairseq.files import write_json

        write_json(options.json, {"results": results, "machines": [machine(d) for d in devices(options.device)]})


def interleaved_processor_time(steps: dict[str, Step], repeats: int) -> dict[str, tuple[float, float]]:
    """As `measuring.interleaved`: seconds, and the ratio to the first step, but of processor time."""
    rounds = []
    for _ in range(repeats + 1):  # the first is not counted
        times = {}
        for name, step in steps.items():
            started = time.process_time()
            step()
            times[name] = time.process_time() - started
        rounds.append(times)
    base = next(iter(steps))
    return {
        name: (
            statistics.median(times[name] for times in rounds[1:]),
            statistics.median(times[name] / times[base] for times in rounds[1:]),
        )
        for name in steps
    }


def make_trainer(name: str, device: str, vocabulary: int, folder: str) -> Any:
    """A Trainer that is ready for its first update, with one batch, always the same, as `batch`."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    from agg_fairseq.integrations import label_counts
    from agg_fairseq.integrations.transformers import GatedLoss

    layers, dimension, heads, steps, sequences = SIZES[device]
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_layer=layers, n_embd=dimension, n_head=heads, n_positions=steps)
    )
    tokens = zipf(vocabulary, 8 * sequences * steps).view(-1, steps)
    examples = [{"input_ids": block, "labels": block} for block in tokens]
    callbacks = []
    if name in PEERS:
        use(model, peer_loss(name))
    elif (given := VARIANTS[name]) is not None:
        more = {}
        if name == "agps":
            more = {"agps_counts": label_counts(examples, vocabulary), "agps_rare_rank": round(0.565 * vocabulary)}
        callbacks.append(GatedLoss(model, **given, **more))
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=sequences, max_steps=1000, report_to=[], disable_tqdm=True,
        save_strategy="no", use_cpu=device == "cpu", bf16=device != "cpu",
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=examples, callbacks=callbacks)
    trainer.model_wrapped = trainer.accelerator.prepare(trainer.model)
    trainer.create_optimizer()
    trainer.batch = next(iter(trainer.get_train_dataloader()))
    return trainer


def use(model: Any, loss: Loss) -> None:
    """Makes a GPT-2 compute its loss from features and output embedding, as other packages change models."""

    def forward(input_ids: Tensor, labels: Tensor, num_items_in_batch: Tensor, **others: Any) -> dict[str, Tensor]:
        features = model.transformer(input_ids, **others).last_hidden_state[:, :-1].flatten(0, 1)
        total = loss(features, model.lm_head.weight.to(features.dtype), labels[:, 1:].flatten())
        return {"loss": total / num_items_in_batch}

    model.forward = forward


def update_of(trainer: Any) -> Step:
    """The parts of Trainer's loop that an update goes through."""

    def update() -> None:
        events, given = trainer.callback_handler, (trainer.args, trainer.state, trainer.control)
        trainer.control = events.on_step_begin(*given)
        items = trainer._get_num_items_in_batch([trainer.batch], trainer.args.device)
        trainer.training_step(trainer.model_wrapped, trainer.batch, items)
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.control = events.on_optimizer_step(*given)
        trainer.model.zero_grad()

    return update


def peak(name: str, device: str, vocabulary: int, folder: str) -> float:
    """MiB of one training step."""
    trainer = make_trainer(name, device, vocabulary, folder)
    update_of(trainer)()  # a window of one update, so that the next one has gates
    items = trainer._get_num_items_in_batch([trainer.batch], trainer.args.device)
    return peak_mib(
        lambda: trainer.training_step(trainer.model_wrapped, trainer.batch, items), trainer.model.zero_grad, device
    )


if __name__ == "__main__":
    main()
