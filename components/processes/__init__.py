"""Child processes that may crash, hang or be killed."""
