"""SVG plots of a result, drawn with the page's own colours so that light, dark and print work."""

from kdops.report.plots.charts import commits, context, drift, gaps, ratios

__all__ = ["commits", "context", "drift", "gaps", "ratios"]
