"""Project templates that a user copies and owns, and the code that copies them."""
