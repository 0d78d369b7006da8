"""Published rows of language models: which are modelled, and why the others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import FileFormatError
from abele.validation import llm

pytestmark = pytest.mark.torch

HEAD = "source,chip,n_chips,workload,setting,dtype,metric,value,unit\n"


def written(folder: Path, *rows: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def test_rows__of_other_kinds__are_counted_with_their_reasons(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a,A100-40GB,1,dense torch,batch=64,fp16,time per query,49,us",
        'b,IPU,4,GPT-J 6B MNLI,"group size 64",int4,MNLI accuracy,81,%',
        "c,Mk2 IPU,,packed BERT,depth 2,fp16,packs,9.095,M",
        "d,CS-2,1,GenSLM,seq 10240,,steps,5000,",
    )
    found, failed, remarks = llm.compare(path)
    assert (found, failed) == ([], ())
    assert remarks[0] == "0 rows are modelled"
    assert len(remarks) == 5
    assert any("A100" in remark for remark in remarks)
    assert any("--packing" in remark for remark in remarks)


def test_rows__without_sizes__are_refused_by_name(tmp_path: Path) -> None:
    row = 'e,IPU (POD16),16,Llama-2 7B chat generation,"TP=16, seq 1024, no KV cache",fp16,decode rate,7.0,steps/s'
    with pytest.raises(FileFormatError, match="batch"):
        llm.compare(written(tmp_path, row))


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "", "\x01"])
def test_files__that_are_no_table_of_results__are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(FileFormatError, match="no column"):
        llm.compare(path)


def test_rates__of_nothing__are_refused(tmp_path: Path) -> None:
    row = 'f,IPU (C600 implied),1,BERT-Base inference,"seq 256, batch 1",bf16,throughput,10,samples/s'
    with pytest.raises(FileFormatError, match="bf16"):
        llm.compare(written(tmp_path, row))
