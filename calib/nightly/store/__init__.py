"""Measurements as a Parquet dataset, and the history of nights in an embedded DuckDB database beside it.

Raw result files and the folder of each night stay the truth: the store is built from them, and may be deleted at any time.
"""
