"""Settings to files: pure functions, no network, no process."""

from kdops.render.files import FileSet, RenderedFile
from kdops.render.render import render

__all__ = ["FileSet", "RenderedFile", "render"]
