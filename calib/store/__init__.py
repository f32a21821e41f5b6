"""Measurements as a Parquet dataset, and the history of nights in an embedded DuckDB database beside it.

Raw result files and the folder of each night stay the truth: the store is built from them, and may be deleted at any time.
"""

from calib.store.check import Problem, check_store
from calib.store.lock import StoreLock
from calib.store.reader import Store, open_store
from calib.store.writer import CampaignRow, Stamp, Writer, open_writer

__all__ = [
    "CampaignRow", "Problem", "Stamp", "Store", "StoreLock", "Writer", "check_store", "open_store", "open_writer",
]  # fmt: skip
