"""Self-contained HTML reports with inline plots."""

from tfx_perf.report.page import Report

__all__ = ["Report"]
