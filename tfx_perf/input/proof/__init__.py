"""Whether a candidate yields what the default yields."""
