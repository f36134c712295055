"""The particle system: arrays in, arrays out."""
