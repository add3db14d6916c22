"""The columns of the data and what becomes of them."""

# Scaled to mean 0 and variance 1.
NUMERIC = ("amount", "discount", "items")

# Turned into the position in a vocabulary that Transform makes.
CATEGORICAL = ("channel", "country")

# Values beyond the vocabulary share one more position.
VOCABULARY_SIZE = 100

# 0 or 1.
LABEL = "returned"
