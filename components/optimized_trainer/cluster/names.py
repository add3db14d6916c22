"""Names of jobs on Kubernetes."""

import re

# What the operators add must fit into 63 characters: `-worker-999`, or `-node-0-999` and six more.
_LENGTH = 44


def job_name(*words: str, digest: str) -> str:
    """Returns a DNS label (RFC 1035) that ends with the digest.

    Args:
        *words: what the job is of; what no label may have becomes `-`, and what is too long is
            left out.
        digest: tells jobs of the same words apart; letters and digits.
    """
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    if not text[:1].isalpha():
        text = f"training-{text}"
    return f"{text[: _LENGTH - len(digest) - 1].strip('-')}-{digest}"
