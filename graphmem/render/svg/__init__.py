"""A report as one picture, for a paper or a README: plain SVG without scripts."""

from graphmem.render.svg.picture import as_svg

__all__ = ["as_svg"]
