"""Project templates that a user copies and owns, and what copies them."""
