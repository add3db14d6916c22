"""Names of jobs on Kubernetes."""

import re

# What the operators add must fit into 63 characters: `-worker-999`, or `-node-0-999` and six more.
_LENGTH = 44


def job_name(*words: str, digest: str) -> str:
    """Returns a DNS label (RFC 1035) of the words, as far as they fit, ending with the digest."""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    if not text[:1].isalpha():
        text = f"training-{text}"
    return f"{text[: _LENGTH - len(digest) - 1].strip('-')}-{digest}"
