"""Turns the JSON log of fairseq-train on standard input into one line of progress.

fairseq-train … --log-format json | python scripts/demo/progress.py NAME UPDATES
"""

import json
import re
import sys
import time

WIDTH = 30
SHOWN = {"ppl": "ppl", "isotropy": "I(W)", "rare_tokens": "rare tokens"}


def main(name: str, updates: int) -> None:
    """Redraws the line on a terminal, and prints every tenth of the way elsewhere."""
    started, printed, first, shown = time.time(), -1, None, {}
    for line in sys.stdin:
        found = re.search(r"\| (train_inner|valid) \| (\{.*\})", line)
        if not found:
            continue
        values = {key.removeprefix("valid_"): value for key, value in json.loads(found[2]).items()}
        shown |= {label: values[key] for key, label in SHOWN.items() if key in values}
        done = int(values["num_updates"])
        first = done if first is None else first
        seconds = (time.time() - started) / max(done - first, 1) * (updates - done)
        bar = "#" * (WIDTH * done // updates)
        text = f"{name:<12} [{bar:<{WIDTH}}] {done}/{updates}  " + "  ".join(f"{k} {v}" for k, v in shown.items())
        if sys.stdout.isatty():
            print(f"\r{text}  {seconds:.0f} s left   ", end="", flush=True)
        elif 10 * done // updates > printed:
            printed = 10 * done // updates
            print(text, flush=True)
    if sys.stdout.isatty():
        print()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
