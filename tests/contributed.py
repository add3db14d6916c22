"""The code that CONTRIBUTING.md shows."""

import pathlib
import re

PAGE = pathlib.Path(__file__).parents[1].joinpath("CONTRIBUTING.md").read_text()
OPTIMIZATION, CANDIDATE = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
