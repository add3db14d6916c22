"""The columns of the data and how they are transformed."""

# Scaled to mean 0 and variance 1.
NUMERIC = ("amount", "discount", "items")

# Turned into positions in a vocabulary that Transform computes.
CATEGORICAL = ("channel", "country")

# Values beyond the vocabulary share one more position.
VOCABULARY_SIZE = 100

# 0 or 1.
LABEL = "returned"
