"""Writes 4,000 rows: two numbers, and whether their sum is above one."""

import csv
import pathlib
import random

random.seed(3)
pathlib.Path("data").mkdir(exist_ok=True)
with open("data/points.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["x", "y", "label"])
    for _ in range(4000):
        x, y = random.random(), random.random()
        rows.writerow([x, y, int(x + y > 1)])
