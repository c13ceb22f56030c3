"""The cluster's verbs, one a file: each reads its options, calls the part that does the work, and
writes the outcome as text or JSON."""
