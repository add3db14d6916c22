"""The large sections of the settings, a file each, and what reads and checks all settings.

A new section is a `Section` here or in `tfx_perf.config`, a line in `PerfConfig` there, and a table
in docs/settings.md.
"""
