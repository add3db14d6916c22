"""Makes the data this project comes with: orders, and whether they were sent back.

```sh
python make_data.py                                   # data/orders.csv, 3,000 rows
python make_data.py --rows 100000 --format tfrecord --output records
```

Put your own files into `data/` instead, and name their columns in `models/features.py`.
"""

import argparse
import csv
import math
import pathlib
import random

from tfx_perf.core import console

CHANNELS = ("app", "shop", "web")
COUNTRIES = ("DE", "FR", "IT", "NL", "PL")


def rows(count: int, *, seed: int = 1) -> list[dict[str, float | int | str]]:
    """Returns orders; expensive, discounted and distant ones are returned more often."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        order = {
            "amount": round(chance.lognormvariate(3.5, 0.8), 2),
            "discount": round(chance.random() ** 3, 2),
            "items": chance.randint(1, 8),
            "channel": chance.choice(CHANNELS),
            "country": chance.choice(COUNTRIES),
        }
        score = (
            0.9 * (math.log(order["amount"]) - 3.5)
            + 2.5 * order["discount"]
            + (1.0 if order["channel"] == "web" else -0.8)
            + 0.3 * COUNTRIES.index(order["country"])
            - 1.6
        )
        order["returned"] = int(chance.random() < 1 / (1 + math.exp(-2 * score)))
        made.append(order)
    return made


def write_csv(made: list[dict[str, float | int | str]], path: pathlib.Path) -> None:
    """Writes one CSV file with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(made[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)


def write_records(made: list[dict[str, float | int | str]], path: pathlib.Path) -> None:
    """Writes one gzip-compressed TFRecord file of tf.Example."""
    with console.libraries():  # TensorFlow logs a lot while it is imported
        import tensorflow as tf

    def feature(value: float | int | str) -> tf.train.Feature:
        if isinstance(value, str):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))

    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for order in made:
            features = {name: feature(value) for name, value in order.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def main() -> None:
    """Writes the data that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--format", choices=("csv", "tfrecord"), default="csv")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("data"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    made = rows(arguments.rows)
    if arguments.format == "csv":
        write_csv(made, arguments.output / "orders.csv")
    else:
        write_records(made, arguments.output / "orders.tfrecord.gz")


if __name__ == "__main__":
    main()
