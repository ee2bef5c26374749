"""The example of embedded texts, in the session of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark"


@pytest.mark.deep
@pytest.mark.rule("FLEET-1.4", "ROWS-5.1")
def test_a_table_and_a_stream_become_vectors_and_share_one_gpu(
    spark, tmp_path, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(EXAMPLE)
    import embed_texts

    with embed_texts.fleets(spark) as through:
        vectors = embed_texts.of_a_table(spark, through, 60)
        embed_texts.check("a table", vectors, 60)
        streamed = embed_texts.of_a_stream(spark, through, tmp_path, 40)
        embed_texts.check("a stream", streamed, 40)
        ranks = embed_texts.ranked(spark.createDataFrame(vectors), through).collect()

    assert "a stream: 40 texts, each once, and equal" in capsys.readouterr().out
    assert {row.id: row.rank for row in ranks} == {row.id: sum(row.vector) for row in vectors}
    assert len({row.process for row in ranks}) == 1
    with pytest.raises(SystemExit, match="differ"):
        embed_texts.check("a table", vectors[:-1] + vectors[:1], 60)
