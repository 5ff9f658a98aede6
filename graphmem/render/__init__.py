"""Renderers: a finished report in, text out. They compute nothing but collapsed rows."""

from graphmem.render.json import as_json
from graphmem.render.markdown import as_markdown
from graphmem.render.table import as_text

__all__ = ["as_json", "as_markdown", "as_text"]
