"""The data pipeline: journals of many nodes become tables, by PySpark (``specs/pipeline.md``).

Everything here is a function from DataFrames to DataFrames, except ``wmp.spark.java`` and
``wmp.spark.session``, which start Spark, and ``wmp.spark.journals`` and ``wmp.spark.tables``,
which read and write. Nothing of the library imports it; it needs the extra ``spark``.
"""

from importlib.util import find_spec

from wmp.errors import ConfigError

for _name in ("pyspark", "pandas", "pyarrow"):
    if find_spec(_name) is None:
        raise ConfigError(
            f"the pipeline needs pyspark, pandas and pyarrow, and {_name} is not installed; "
            "run: pip install 'wmp[spark]'"
        )
