"""Code that all of tfx-perf uses."""

VERSION = "0.1.0"
