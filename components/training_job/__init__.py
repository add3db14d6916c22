"""What it takes to run the user's training code, and to run it again."""
