"""The sections of the settings, a file each, and what reads and checks all settings.

A new section is a `Section` in a file of its own, a line in `tfx_perf.config.PerfConfig`, and a
table in docs/settings.md.
"""
