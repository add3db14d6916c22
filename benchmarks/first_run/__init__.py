"""The cost of a first run: the stock Trainer alone compared with the whole chain."""
