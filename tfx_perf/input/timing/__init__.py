"""How fast datasets are, and how much memory a piece of work takes."""
