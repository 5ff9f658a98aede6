"""A report as one self-contained page.

The drawing is its own, plain SVG: what it needs (ten stacked areas of up to tens of thousands
of operations, bands of steps and phases, a treemap, a map of segments, all with the keyboard,
in two themes and on paper) is in no one library, and the areas of a pixel column each are
quickly drawn.
"""

from graphmem.render.html.page import as_html

__all__ = ["as_html"]
