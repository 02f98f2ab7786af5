import subprocess
import sys

import pytest

from agg_fairseq.cli import doctor
from agg_fairseq.cli.main import main


def test_doctor_reports_incompatible_versions(capsys, monkeypatch):
    versions = doctor.installed_versions()
    monkeypatch.setattr(doctor, "_gpus", lambda: ["a card"])
    found = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "triton" else found(name))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "functional API: ready; training with fairseq: ready" in printed
    assert "note: found a GPU but no Triton" in printed
    monkeypatch.setattr(doctor, "installed_versions", lambda: versions | {"fairseq": None})
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "note: fairseq is missing, by which models are trained and data is read; pip install" in printed
    assert "functional API: ready; training with fairseq: not installed" in printed
    monkeypatch.setattr(doctor, "installed_versions", lambda: versions | {"fairseq": "0.12.2"})
    monkeypatch.setattr(doctor, "_import_failure", lambda *names: "ValueError: x" if len(names) > 1 else None)
    there = ("fairseq-fixed", "ve-fairseq")
    monkeypatch.setattr(doctor.importlib.metadata, "distributions", lambda name: [name] if name in there else [])
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "note: found fairseq-fixed and ve-fairseq, which install the same files" in printed
    assert "error: fairseq 0.12.2 cannot be imported (ValueError: x); pip" in printed


@pytest.mark.parametrize("missing", ["torch", "fairseq"])
def test_it_runs_where_things_are_missing(missing):
    program = f"import sys; sys.modules[{missing!r}] = None\n"
    program += "from agg_fairseq.cli.main import main; sys.exit(main(['doctor']))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1 and "error: " in result.stdout and "Traceback" not in result.stderr
