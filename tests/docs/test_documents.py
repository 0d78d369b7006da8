"""Code in the documents runs, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from abele.machine import systems

ROOT = Path(__file__).resolve().parents[2]


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(code: list[str], **names: Any) -> dict[str, Any]:
    namespace = dict(names)
    for block in code:
        exec(compile(block, "document", "exec"), namespace)
    return namespace


def test_machines__page__runs(tmp_path: Path) -> None:
    names = run(blocks("docs/machine.md", "python"))
    assert names["quick"].ipu.clock_hz == 2.5e9
    path = tmp_path / "small.toml"
    path.write_text(blocks("docs/machine.md", "toml")[0], encoding="utf-8")
    assert systems.load(path).num_tiles == 256


def test_reports__page__runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    monkeypatch.chdir(tmp_path)
    run(blocks("docs/report.md", "python"))
    assert (tmp_path / "run.abele-report").is_file()
    assert (tmp_path / "run.png").is_file()


def test_reports__kinds_of_picture__are_those_of_the_page() -> None:
    from abele.report.plot import KINDS

    text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    assert [f"| `{kind}` | {what} |" for kind, what in KINDS.items()] == re.findall(
        r"\| `\w+` \| .* \|", text[text.index("| kind | shows |") : text.index("Where several tiles")]
    )


@pytest.mark.torch
@pytest.mark.slow
def test_readme__pytorch_program__trains(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from abele.garden.digits import TrainingModelWithLoss

    samples = 16 * 2 * 11
    dataset = torch.utils.data.TensorDataset(torch.rand(samples, 12), torch.arange(samples) % 3)
    network = torch.nn.Sequential(torch.nn.Linear(12, 3), torch.nn.LogSoftmax(dim=1))
    run(blocks("README.md", "python")[:1], torch=torch, dataset=dataset, model=TrainingModelWithLoss(network))
    assert "tile balance" in capsys.readouterr().out


def test_links__documents__lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
