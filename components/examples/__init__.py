"""From Examples artifacts to what is read of them."""
