"""Measurement: the same step run for real, beside its prediction."""
