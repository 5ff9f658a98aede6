"""Tests of the renderers, and the reports they are shown."""
