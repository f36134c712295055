"""Distances, switch times and laws: arrays in, arrays out."""
