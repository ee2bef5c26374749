"""Tables as jobs: pieces of Arrow record batches for workers (``specs/rows.md``).

The import of this package registers the codec ``arrow``. The package needs ``pyarrow``.
"""

import importlib.util

import wmp.errors

if importlib.util.find_spec("pyarrow") is None:
    raise wmp.errors.ConfigError(
        "wmp.rows needs pyarrow, which is not installed; run: "
        "pip install 'worker-manager-protocol[rows]'"
    )

from wmp.rows.limits import RowLimits, limits, set_limits
from wmp.rows.payloads import CODEC, decode, encode
from wmp.rows.pieces import Piece, TablePartition, cut
from wmp.rows.row_handlers import handler, row_handler
from wmp.rows.row_jobs import run_rows
from wmp.rows.row_terms import RowTerms

__all__ = [
    "CODEC",
    "Piece",
    "RowLimits",
    "RowTerms",
    "TablePartition",
    "cut",
    "decode",
    "encode",
    "handler",
    "limits",
    "row_handler",
    "run_rows",
    "set_limits",
]
