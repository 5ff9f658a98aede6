"""Tests of the comparison of two reports."""
