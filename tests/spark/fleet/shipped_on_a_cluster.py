"""Ship the library and a module to the executors of a local cluster, twice; print the result.

The executors are processes that fetch files from the driver, as those of any cluster.
``python -m tests.spark.fleet.shipped_on_a_cluster FOLDER``
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import wmp
from tests.spark.clusters import OPTIONS
from wmp.spark import Fleet, ship
from wmp.spark.session.session import start_session

SHIPPED = """
import wmp

def double(payload):
    return str(2 * int(payload))

ROLES = {"double": double}
"""


def main(folder: Path) -> None:
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    modules = folder / "modules"
    modules.mkdir(parents=True)
    (modules / "shipped_work.py").write_text(SHIPPED)
    (modules / "shipped_later.py").write_text("NUMBER = 7\n")
    sys.path.insert(0, str(modules))
    spark = start_session(
        "local-cluster[1,2,700]",
        confs={
            "spark.executor.memory": "700m",
            "spark.driver.extraJavaOptions": OPTIONS,
            "spark.executor.extraJavaOptions": OPTIONS,
        },
    )

    def imported(batches):
        import pyarrow
        import shipped_later
        import shipped_work

        for batch in batches:
            where = [str(module.__file__) for module in (shipped_work, shipped_later)]
            yield pyarrow.RecordBatch.from_pydict({"where": where * batch.num_rows})

    try:
        ship(spark, "shipped_work")
        ship(spark, "shipped_later")
        rows = spark.range(0, 3, 1, 1).mapInArrow(imported, "where string").collect()
        with (
            wmp.Manager("tcp://127.0.0.1:*") as manager,
            Fleet(spark, "shipped_work:ROLES", workers=1, managers=manager.endpoints),
        ):
            doubled = [int(end) for end in manager.map([b"1", b"2", b"3"], role="double")]
    finally:
        spark.stop()
    print(json.dumps({"where": [row[0] for row in rows], "doubled": doubled}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
