"""What a first run costs: the stock Trainer alone against the whole chain."""
