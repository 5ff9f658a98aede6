"""Predictions beside what others measured on real GPUs: one module a family of rows.

A module has ``BARS``, what its predictions are held to, ``takes``, which rows are its own,
and ``outcomes``, which predicts them. ``tools/truth_report.py`` runs them and prints them.
"""
