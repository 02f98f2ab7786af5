import subprocess
import sys

from agg_fairseq.cli import doctor
from agg_fairseq.cli.main import main


def test_what_cannot_work_is_said(capsys, monkeypatch):
    class Distribution:
        version = "2.6"

    monkeypatch.setattr(doctor, "IMPORTED", {"torch": ""})
    monkeypatch.setattr(doctor.importlib.metadata, "distributions", lambda name: [Distribution])
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for words in ("ve-fairseq and fairseq install the same", "--load-checkpoint-on-all-dp", "numpy<2"):
        assert words in printed


def test_it_runs_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None; from agg_fairseq.cli.main import main; sys.exit(main(['doctor']))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1 and "error: torch cannot be imported" in result.stdout
    assert "training with fairseq: not ready" in result.stdout and "Traceback" not in result.stderr
