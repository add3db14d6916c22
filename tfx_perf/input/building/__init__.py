"""What candidates are built of: rows, columns and batches."""
