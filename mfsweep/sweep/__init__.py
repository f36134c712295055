"""Grids, stores and execution."""
