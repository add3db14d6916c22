"""Steps that are handed out to others: which, on what data, and what is saved."""
