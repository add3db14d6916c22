"""`python -m tfx_perf` is the command `tfx-perf`."""

from tfx_perf.cli import main

if __name__ == "__main__":
    main.main()
