"""``spark_udf``: a ``Scorer`` for Spark's own data frames."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from onesigma.fleet.scorer import Scorer
from onesigma.tables.arrow import import_pyarrow, to_arrow, to_numpy


class SparkScorer:
    """What ``DataFrame.mapInArrow`` takes; made by ``spark_udf``."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Record batches in, record batches out."""
        pyarrow, _ = import_pyarrow()
        for batch in batches:
            columns = {name: batch.column(name) for name in batch.schema.names}
            wanted = {*self.scorer.channels, *(self.scorer.keep or columns)}
            given = {k: to_numpy(column) for k, column in columns.items() if k in wanted}
            answers = self.scorer(given)
            # What passes through does not go by way of numpy, which knows fewer types.
            made = {k: columns[k] if k in columns else to_arrow(answers[k]) for k in answers}
            yield pyarrow.RecordBatch.from_pydict(made)

    def schema(self, frame: Any) -> Any:
        """What comes out for a data frame like this one, for ``mapInArrow``."""
        types: Any = import_module("pyspark.sql.types")

        kinds = {"f": types.FloatType(), "i": types.LongType(), "O": types.StringType()}
        keep = [name for name in frame.columns if name not in self.scorer.channels]
        fields = [frame.schema[name] for name in (self.scorer.keep or keep)]
        for name, column in self.scorer.example.items():
            fields.append(types.StructField(name, kinds[column.dtype.kind]))
        return types.StructType(fields)


def spark_udf(model: str | Path | bytes, **options: Any) -> SparkScorer:
    """Answer the rows of a Spark data frame.

    ::

        answer = onesigma.fleet.spark_udf("model.onnx", inputs="window")
        answers = frame.mapInArrow(answer, answer.schema(frame))

    Args:
        model: an ``.onnx`` file of ``onesigma.export``, or its bytes.
        options: see ``Scorer``. Without ``window``: Spark cuts a frame into batches anywhere. For
            recordings see ``score``.
    """
    return SparkScorer(Scorer(model, **options))
